use std::path::PathBuf;

use mlx_overlay::{PolicyError, UnknownName};

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be examined, measured or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the library or of MLX.
    #[error(transparent)]
    Mlx(#[from] mlx_overlay::Error),

    /// A text is not a policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),

    /// A text is not a product.
    #[error(
        "a product is [NAME=]OUTPUTSxVALUES[:BITS[:GROUP]] or [NAME=]OUTPUTSxVALUES:MODE, such as 17408x5120:4:64 or head=248320x2560:mxfp4; found \"{found}\": {reason}"
    )]
    Product {
        /// The given text.
        found: String,
        /// The problem.
        reason: String,
    },

    /// A file that cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        path: PathBuf,
        /// The system's error. Not a `source`, because the message includes it.
        error: std::io::Error,
    },

    /// A file with unexpected content.
    #[error("{}: {reason}", path.display())]
    Content {
        path: PathBuf,
        /// The expected and the actual content.
        reason: String,
    },

    /// Two arms would measure the same thing.
    #[error(
        "{product}, M = {rows}: `{first}` and `{second}` take the same kernel, {kernel}: comparing them would measure noise"
    )]
    SameKernel {
        /// The product.
        product: String,
        /// Rows.
        rows: usize,
        /// One arm.
        first: String,
        /// The other.
        second: String,
        /// The kernel of both.
        kernel: String,
    },

    /// The kernel is not the one that was planned or examined.
    #[error("{what}: expected the kernel {expected}, found {found}")]
    Kernel {
        /// The product and its setting.
        what: String,
        /// The kernel that was expected.
        expected: String,
        /// The kernel that was dispatched.
        found: String,
    },

    /// Kernels were dispatched that were not probed under that policy.
    #[error(
        "policy {policy} was probed with {}, but {} ran as well: they were not probed",
        probed.join(", "),
        strangers.join(", ")
    )]
    Uncertified {
        /// The policy.
        policy: String,
        /// Functions that were probed.
        probed: Vec<String>,
        /// Functions that were not probed.
        strangers: Vec<String>,
    },

    /// The calibration was made elsewhere.
    #[error("the calibration is for {expected}, but this is {found}: calibrate again here")]
    ForeignCalibration {
        /// The machine and the library with which it was made.
        expected: String,
        /// The current machine and library.
        found: String,
    },

    /// An unknown name.
    #[error(transparent)]
    Name(#[from] UnknownName),

    /// An invalid option.
    #[error("{0}")]
    Invalid(String),

    /// The process that measures another build failed.
    #[error("the other build, {}: {reason}", program.display())]
    Worker {
        /// The program.
        program: PathBuf,
        /// The problem.
        reason: String,
    },
}

impl Error {
    pub(crate) fn content(path: impl Into<PathBuf>, reason: impl ToString) -> Self {
        Self::Content {
            path: path.into(),
            reason: reason.to_string(),
        }
    }
}
