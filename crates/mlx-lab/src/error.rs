use std::path::PathBuf;

use mlx_overlay::{PolicyError, UnknownName};

/// What every fallible function of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be examined, measured or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library's, or MLX's.
    #[error(transparent)]
    Mlx(#[from] mlx_overlay::Error),

    /// A policy that is not written as one.
    #[error(transparent)]
    Policy(#[from] PolicyError),

    /// A product that is not written as one.
    #[error(
        "a product is [NAME=]OUTPUTSxVALUES[:BITS[:GROUP]] or [NAME=]OUTPUTSxVALUES:MODE, as in 17408x5120:4:64 or head=248320x2560:mxfp4; found \"{found}\": {reason}"
    )]
    Product {
        /// What was given.
        found: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A file that cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What the system says; no `source`, as the text has it.
        error: std::io::Error,
    },

    /// A file whose content is not what is expected.
    #[error("{}: {reason}", path.display())]
    Content {
        /// Its path.
        path: PathBuf,
        /// What is expected, and what was found.
        reason: String,
    },

    /// Two arms that would measure the same thing.
    #[error(
        "{product}, M = {rows}: `{first}` and `{second}` take the same kernel, {kernel}; comparing them would measure noise"
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
        /// The kernel that both take.
        kernel: String,
    },

    /// A kernel other than the one that was planned or examined.
    #[error("{what}: expected the kernel {expected}, found {found}")]
    Kernel {
        /// The product and its setting.
        what: String,
        /// The kernel that it should take.
        expected: String,
        /// The one that was dispatched.
        found: String,
    },

    /// Kernels were dispatched that no probe has examined under that policy.
    #[error(
        "policy {policy} was probed with {}, but {} ran as well: the probe says nothing about them",
        probed.join(", "),
        strangers.join(", ")
    )]
    Uncertified {
        /// The policy.
        policy: String,
        /// Functions that the probe saw.
        probed: Vec<String>,
        /// Functions that it did not see.
        strangers: Vec<String>,
    },

    /// A calibration made elsewhere.
    #[error("the calibration is for {expected}, this is {found}: calibrate here")]
    ForeignCalibration {
        /// The machine and the library that it was made with.
        expected: String,
        /// Those at hand.
        found: String,
    },

    /// A name that nothing has.
    #[error(transparent)]
    Name(#[from] UnknownName),

    /// An option that makes no sense.
    #[error("{0}")]
    Invalid(String),

    /// The process that measures another build.
    #[error("the other build, {}: {reason}", program.display())]
    Worker {
        /// Its program.
        program: PathBuf,
        /// What went wrong.
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
