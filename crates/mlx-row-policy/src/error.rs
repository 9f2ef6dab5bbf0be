use std::ffi::c_int;

use crate::sys;

/// What every fallible function of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// MLX refused; its text.
    #[error("{0}")]
    Mlx(String),

    /// The program links no MLX, or one without the overlay.
    #[error(
        "no MLX with mlx-overlay's patches is linked into this program: let the bindings that link MLX take one that `cargo xtask build --cpu` of mlx-overlay made (its docs/guide/bindings.md)"
    )]
    NoOverlay,

    /// The linked MLX has the overlay, but no kernels for policies: they come with its Metal back-end.
    #[error(
        "the linked MLX has no kernels for policies: they come with the Metal back-end of mlx-overlay (`--backend metal` or `sim`)"
    )]
    NoKernels,

    /// The linked MLX has the overlay, but this function of it is not in the program: a linker takes from a static
    /// library what is called, and the program calls nothing of MLX that would bring it.
    #[error(
        "the linked MLX has mlx-overlay's patches, but the linker left `{function}` out of this program, which uses no operation of MLX: link with `-C link-arg=-Wl,-u,{function}`"
    )]
    LeftOut {
        /// Its name in C.
        function: &'static str,
    },

    /// [`crate::Stream::scope`] needs mlx-c, and this function of it is not in the program.
    #[error(
        "a scope needs mlx-c, which mlx-rs links, and `{function}` of it is not in this program"
    )]
    NoMlxC {
        /// Its name in C.
        function: &'static str,
    },

    /// mlx-c knows no stream of that index.
    #[error("mlx-c knows no stream {index}: does it use another MLX than the one that made it?")]
    NoStream {
        /// The stream's index.
        index: i32,
    },

    /// mlx-c failed, and told its error handler why. Its own handler ends the process; mlx-rs sets another.
    #[error("mlx-c failed to change the default stream; its error handler was told why")]
    MlxC,

    /// A scope of a stream of another device than MLX's default one.
    #[error(
        "stream {index} is not one of MLX's default device, where operations that name no stream would still run: make its device the default one first (`Device::set_default` of mlx-rs)"
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
    /// What it means that the program lacks a function.
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

    /// The outcome of a C function that gives 0 for success.
    pub(crate) fn check(status: c_int) -> Result<()> {
        match (status, sys::absent()) {
            (0, _) => Ok(()),
            (_, Some(function)) => Err(Self::of_absent(function)),
            _ => Err(Self::Mlx(sys::why())),
        }
    }
}
