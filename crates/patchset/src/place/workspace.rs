//! The paths of a checkout.

use std::env;

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;

use crate::error::{Error, Result};
use crate::place::scratch::{Scratch, sweep};

const LOCK: &str = "mlx.lock";

/// The prefix of the names of unfinished work.
pub(crate) const SCRATCH: &str = "tmp-";

/// A checkout of mlx-overlay: the folder of `mlx.toml`.
#[derive(Debug, Clone)]
pub struct Workspace {
    root: Utf8PathBuf,
}

impl Workspace {
    /// The lock's copy in the package that is published with it. It is not a link: with `core.symlinks` off, git writes
    /// a link as a text file.
    pub const LOCK_COPY: &str = "crates/mlx-overlay-sys/mlx.lock";

    /// The checkout around the current folder. Reads only names and writes nothing.
    ///
    /// # Errors
    /// There is no `mlx.toml` in the folder or above it.
    pub fn discover() -> Result<Self> {
        let here = env::current_dir()?;
        let here = Utf8PathBuf::from_path_buf(here)
            .map_err(|path| Error::source(path.display().to_string(), "the path is not UTF-8"))?;
        Self::around(&here)
    }

    /// The checkout around another folder.
    ///
    /// # Errors
    /// See [`Workspace::discover`].
    pub fn around(folder: &Utf8Path) -> Result<Self> {
        folder
            .ancestors()
            .find(|folder| folder.join("mlx.toml").is_file())
            .map(Self::at)
            .ok_or_else(|| Error::NoWorkspace(folder.to_owned()))
    }

    /// The checkout at `root`, without any check.
    pub fn at(root: impl AsRef<Utf8Path>) -> Self {
        Self {
            root: root.as_ref().to_owned(),
        }
    }

    /// The folder of the checkout.
    pub fn root(&self) -> &Utf8Path {
        &self.root
    }

    /// `mlx.toml`: the pin, edited by people.
    pub fn manifest_path(&self) -> Utf8PathBuf {
        self.root.join("mlx.toml")
    }

    /// `mlx.lock`: the trees that the patches produce, written by xtask.
    pub fn lock_path(&self) -> Utf8PathBuf {
        self.root.join("mlx.lock")
    }

    /// `mlx.lock` and [its copy](Self::LOCK_COPY), by path in the checkout.
    pub(crate) fn lock_files(&self) -> Vec<&'static str> {
        let mut files = vec![LOCK];
        if self
            .root
            .join(Self::LOCK_COPY)
            .parent()
            .is_some_and(Utf8Path::is_dir)
        {
            files.push(Self::LOCK_COPY);
        }
        files
    }

    /// `patches/`: the series, the patches and the added files.
    pub fn patches(&self) -> Utf8PathBuf {
        self.root.join("patches")
    }

    /// `vendor/`: the tree, and the files next to it that are needed to change it safely.
    pub fn vendor(&self) -> Utf8PathBuf {
        self.root.join("vendor")
    }

    /// `vendor/mlx`: the pinned MLX with the overlay.
    pub fn tree(&self) -> Utf8PathBuf {
        self.vendor().join("mlx")
    }

    /// `target/overlay`: fetched files. It can be deleted; they are fetched again.
    pub fn cache(&self) -> Utf8PathBuf {
        self.root.join("target/overlay")
    }

    /// A folder in the cache for unfinished work.
    pub(crate) fn scratch(&self) -> Result<Scratch> {
        let cache = self.cache();
        fs::create_dir_all(&cache)?;
        Scratch::new(&cache, SCRATCH)
    }

    /// Removes what killed runs left in the cache, including those of earlier versions.
    pub(crate) fn sweep_scratch(&self) {
        let cache = self.cache();
        sweep(&cache, |name| {
            name.starts_with(SCRATCH) || name.starts_with("mlx.git-")
        });
        sweep(&cache.join("inputs"), |name| {
            name.starts_with(".unpacking-")
        });
    }
}
