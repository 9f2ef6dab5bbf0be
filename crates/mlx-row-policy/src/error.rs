use std::ffi::c_int;

use crate::sys;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation was rejected or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text of an error from MLX.
    #[error("{0}")]
    Mlx(String),

    /// The program links no MLX, or one without the overlay.
    #[error(
        "this program links no MLX with mlx-overlay's patches: make the bindings link the MLX that `cargo xtask build --cpu` of mlx-overlay builds (see its docs/guide/bindings.md)"
    )]
    NoOverlay,

    /// The linked MLX has the overlay, but no kernels for policies: only its Metal back-end has them.
    #[error(
        "the linked MLX has no kernels for policies: only the Metal back-end of mlx-overlay has them (`--backend metal` or `sim`)"
    )]
    NoKernels,

    /// The linked MLX has the overlay, but this function is missing: a linker includes only the objects of a static
    /// library that the program needs, and the program calls nothing in MLX that needs this one.
    #[error(
        "the linked MLX has mlx-overlay's patches, but the linker left `{function}` out of this program, which uses no operation of MLX: link with `-C link-arg=-Wl,-u,{function}`"
    )]
    LeftOut {
        /// The function's name in C.
        function: &'static str,
    },

    /// [`crate::Stream::scope`] needs mlx-c, and this function of mlx-c is missing.
    #[error(
        "a scope needs mlx-c, but this program has no `{function}`: link mlx-c, as mlx-rs does"
    )]
    NoMlxC {
        /// The function's name in C.
        function: &'static str,
    },

    /// mlx-c has no stream with that index.
    #[error(
        "mlx-c has no stream {index}: does it use another MLX than the one that made the stream?"
    )]
    NoStream {
        /// The stream's index.
        index: i32,
    },

    /// mlx-c failed, and called its error handler with the reason. Its default handler ends the process; mlx-rs sets
    /// another.
    #[error("mlx-c failed to change the default stream; it passed the reason to its error handler")]
    MlxC,

    /// A scope of a stream whose device is not MLX's default device.
    #[error(
        "stream {index} is not on MLX's default device, so operations that name no stream would not use it: first make its device the default (`Device::set_default` of mlx-rs)"
    )]
    OtherDevice {
        /// The stream's index.
        index: i32,
    },

    /// An extent of a product does not fit MLX's 32-bit integers.
    #[error("the product {0:?} is too large: each extent must be below 2^31")]
    TooLarge([usize; 3]),
}

impl Error {
    /// The error for a function that the program lacks.
    pub(crate) fn of_absent(function: &'static str) -> Self {
        if !function.starts_with("mlx_row_") {
            return Self::NoMlxC { function };
        }
        let is_absent = |outcome: c_int| sys::absent().is_some() && outcome < 0;
        if is_absent(sys::process_policy(&mut [0; 2])) {
            return Self::NoOverlay;
        }
        match sys::has_kernels() {
            0 => Self::NoKernels,
            outcome => {
                is_absent(outcome);
                Self::LeftOut { function }
            }
        }
    }

    /// Converts the status of a C function that returns 0 for success.
    pub(crate) fn check(status: c_int) -> Result<()> {
        match (status, sys::absent()) {
            (0, _) => Ok(()),
            (_, Some(function)) => Err(Self::of_absent(function)),
            _ => Err(Self::Mlx(sys::why())),
        }
    }
}
