use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::names::{BUILDS, CURRENT, PREFIX_VARIABLE, PRISTINE_VARIABLE};
use crate::{Error, Ids, Result, Stamp};

/// A search, as set by the environment and the location of the program.
#[derive(Debug, Clone)]
pub struct Search {
    /// The value of [`PREFIX_VARIABLE`].
    pub named: Option<PathBuf>,
    /// Whether to use upstream's MLX without the overlay.
    pub pristine: bool,
    /// The checkout; its own build is used if none is named.
    pub workspace: PathBuf,
    /// The base of a relative name.
    pub base: PathBuf,
}

/// An installed MLX.
#[derive(Debug, Clone)]
pub struct Prefix {
    /// The absolute path of its folder, with links resolved.
    pub root: PathBuf,
    /// The build's description of it.
    pub stamp: Stamp,
}

impl Search {
    /// The search that [`PREFIX_VARIABLE`] and [`PRISTINE_VARIABLE`] request.
    pub fn from_environment(workspace: impl Into<PathBuf>, base: impl Into<PathBuf>) -> Self {
        Self {
            named: env::var_os(PREFIX_VARIABLE).map(PathBuf::from),
            pristine: env::var_os(PRISTINE_VARIABLE).is_some_and(|value| value == "1"),
            workspace: workspace.into(),
            base: base.into(),
        }
    }

    /// The folder to examine.
    pub fn root(&self) -> PathBuf {
        match &self.named {
            Some(named) => self.base.join(named),
            None => self.workspace.join(CURRENT),
        }
    }

    /// Checks that the variables are consistent.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyName`], [`Error::PristineUnnamed`].
    pub fn check_names(&self) -> Result<()> {
        match &self.named {
            Some(named) if named.as_os_str().is_empty() => Err(Error::EmptyName),
            None if self.pristine => Err(Error::PristineUnnamed),
            _ => Ok(()),
        }
    }

    /// Returns the prefix if it may be linked: if it was built from the tree in the lock, and is complete.
    ///
    /// # Errors
    ///
    /// If something is missing or differs.
    pub fn resolve(&self, ids: &Ids) -> Result<Prefix> {
        self.check_names()?;
        let prefix = Prefix::open(self.root())?;
        prefix.check_tree(ids, self.pristine)?;
        prefix.check_parts()?;
        Ok(prefix)
    }
}

impl Prefix {
    /// Reads the stamp of the prefix at `root`.
    ///
    /// # Errors
    ///
    /// Those of [`Stamp::read`].
    pub fn open(root: impl AsRef<Path>) -> Result<Self> {
        let root = root.as_ref();
        let stamp = Stamp::read(root)?;
        let root = fs::canonicalize(root).map_err(|error| Error::file(root, error))?;
        Ok(Self { root, stamp })
    }

    /// Compares the tree that it was built from with the lock's final tree or, for a pristine MLX, with its base tree.
    ///
    /// # Errors
    ///
    /// [`Error::OtherTree`].
    pub fn check_tree(&self, ids: &Ids, pristine: bool) -> Result<()> {
        let (name, wanted) = ids.wanted(pristine);
        if self.stamp.final_tree == wanted {
            return Ok(());
        }
        Err(Error::OtherTree {
            root: self.root.clone(),
            found: self.stamp.final_tree.clone(),
            name,
            wanted: wanted.to_owned(),
        })
    }

    /// Checks that the libraries, kernels and include folders that the stamp lists exist and that none of their files is
    /// empty. Without this check a compiler or linker would print many errors, and a program could load the kernels from
    /// the folder where MLX was built.
    ///
    /// # Errors
    ///
    /// [`Error::Incomplete`] with the first one that is missing or empty.
    pub fn check_parts(&self) -> Result<()> {
        let whole =
            |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0);
        let mut files = self.libraries().into_iter().chain(self.metallib());
        let missing = files
            .find(|path| !whole(path))
            .or_else(|| self.include().into_iter().find(|path| !path.is_dir()));
        missing.map_or(Ok(()), |path| Err(Error::Incomplete(path)))
    }

    /// Include folders, absolute.
    pub fn include(&self) -> Vec<PathBuf> {
        let folders = self.stamp.include.iter();
        folders.map(|folder| self.root.join(folder)).collect()
    }

    /// Library folder, absolute.
    pub fn lib(&self) -> PathBuf {
        self.root.join(&self.stamp.lib)
    }

    /// Static libraries, absolute.
    pub fn libraries(&self) -> Vec<PathBuf> {
        let names = self.stamp.static_libs.iter();
        names
            .map(|name| self.lib().join(format!("lib{name}.a")))
            .collect()
    }

    /// Compiled Metal kernels, absolute, if this build has any.
    pub fn metallib(&self) -> Option<PathBuf> {
        let file = self.stamp.metallib.as_ref();
        file.map(|file| self.root.join(file))
    }
}

/// The prefixes of all builds in a checkout, sorted by the names of their folders. Unfinished builds, and those of
/// other versions of this program, are omitted.
///
/// # Errors
///
/// If the folder of builds cannot be listed.
pub fn built(workspace: impl AsRef<Path>) -> Result<Vec<Prefix>> {
    let folder = workspace.as_ref().join(BUILDS);
    let failed = |error| Error::file(&folder, error);
    let mut builds = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        // Skip the link to the last build: it points to a prefix, not to the folder of a build.
        builds.push(entry.map_err(failed)?.path().join("prefix"));
    }
    builds.sort();
    let prefixes = builds.iter().filter_map(|root| Prefix::open(root).ok());
    Ok(prefixes.collect())
}
