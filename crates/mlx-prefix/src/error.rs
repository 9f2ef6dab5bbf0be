use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::names::{PREFIX_VARIABLE, PRISTINE_VARIABLE, STAMP, STAMP_FORMAT};

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a prefix cannot be used, or its files cannot be read or written. Each error is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The variable that names a prefix is empty.
    #[error("{PREFIX_VARIABLE} is empty")]
    EmptyName,
    /// An MLX without the overlay is linked only if a prefix is named.
    #[error("{PRISTINE_VARIABLE}=1 needs {PREFIX_VARIABLE}")]
    PristineUnnamed,
    /// There is no stamp.
    #[error("no built MLX in `{}`, which {found}", root.display())]
    NoPrefix {
        /// The folder that was examined.
        root: PathBuf,
        /// What was found instead.
        found: Found,
    },
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A stamp or lock has invalid content.
    #[error("{}: {message}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The problem.
        message: String,
    },
    /// A stamp with another format.
    #[error("`{}` has format {found}, expected {}", path.display(), STAMP_FORMAT)]
    OtherFormat {
        /// The stamp.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The prefix was built from another tree.
    #[error("the MLX in `{}` was built from tree {found}, but {name} in mlx.lock is {wanted}", root.display())]
    OtherTree {
        /// The prefix.
        root: PathBuf,
        /// The tree that it was built from.
        found: String,
        /// The lock's name for the expected tree.
        name: &'static str,
        /// The expected tree.
        wanted: String,
    },
    /// A file or folder that the prefix's stamp lists is missing or empty.
    #[error("`{}` is missing or empty, but it is part of the built MLX", .0.display())]
    Incomplete(PathBuf),
    /// A list of checksums with an invalid line.
    #[error("{} is not a list of checksums", .0.display())]
    NotAList(PathBuf),
    /// A link or device: the list of checksums covers only files.
    #[error("{} is neither a file nor a folder", .0.display())]
    NeitherFileNorFolder(PathBuf),
    /// A name that cannot be in a list of checksums.
    #[error("the name of {} is not UTF-8", .0.display())]
    NotUtf8(PathBuf),
}

impl Error {
    pub(crate) fn file(path: &Path, error: io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            error,
        }
    }
}

/// What was found in place of a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A link whose target does not exist.
    DeadLink,
    /// A file, such as a bundle's archive.
    File,
    /// A folder without a stamp.
    NoStamp,
}

impl Found {
    pub(crate) fn at(root: &Path) -> Self {
        if root.is_file() {
            Self::File
        } else if root.exists() {
            Self::NoStamp
        } else if root.is_symlink() {
            Self::DeadLink
        } else {
            Self::Nothing
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("does not exist"),
            Self::DeadLink => f.write_str("is a link to a folder that does not exist"),
            Self::File => f.write_str("is a file"),
            Self::NoStamp => write!(f, "has no {STAMP}"),
        }
    }
}
