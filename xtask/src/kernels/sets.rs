//! The sources of kernel names: two trees, the dispatch, a file.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use metal_sim::{Library, Toolchain, default_cache_folder, library_of_tree};
use metallib::Version;
use patchset::Workspace;
use patchset::lock::Lock;

use super::file::{FINGERPRINT, File, Names};
use crate::build;
use crate::build::backend::metal;

/// A set of names that a user can ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Set {
    /// The names that the pinned MLX instantiates.
    Pristine,
    /// The names that the MLX in `vendor/mlx` instantiates, and the fingerprint.
    Patched,
    /// The names that the dispatch of quantized products can ask for, and the fingerprint.
    Dispatch,
    /// The names in a library file, or those that the MLX tree in a folder instantiates.
    Path(Utf8PathBuf),
}

impl FromStr for Set {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "pristine" => Self::Pristine,
            "patched" => Self::Patched,
            "dispatch" => Self::Dispatch,
            path => Self::Path(path.into()),
        })
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pristine => "pristine",
            Self::Patched => "patched",
            Self::Dispatch => "dispatch",
            Self::Path(path) => path.as_str(),
        })
    }
}

/// The system that a library is for. It decides which sources MLX's CMake files compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target(pub(super) Version);

impl Target {
    /// Kernels for matrix units: the NAX blocks of MLX's kernels/CMakeLists.txt.
    fn has_nax(self) -> bool {
        self.0 >= metal::NAX_MINIMUM
    }

    /// Metal 3.2, which the kernels of the fast fence need.
    fn has_fence(self) -> bool {
        self.0.major >= 15
    }

    /// Whether the library contains the kernels of a source.
    fn compiles(self, source: &str) -> bool {
        (self.has_nax() || !is_nax(source)) && (self.has_fence() || source != "fence.metal")
    }
}

/// Whether a source needs matrix units.
pub(crate) fn is_nax(source: &str) -> bool {
    source.contains("_nax")
}

/// Finds sets for one checkout and system.
#[derive(Debug)]
pub(super) struct Sets<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) lock: &'a Lock,
    pub(super) target: Target,
    /// Trees already read: reading one takes seconds.
    pub(super) read: RefCell<BTreeMap<Utf8PathBuf, Names>>,
    /// The library of a JIT build needs only the fingerprint and the kernels of attention: the kernels of products are
    /// compiled from source.
    pub(super) jit: bool,
}

impl Sets<'_> {
    pub(super) fn names(&self, set: &Set) -> Result<Names> {
        match set {
            Set::Pristine => {
                let tree = build::pristine::tree(self.workspace, self.lock.base_tree)?;
                self.of_tree(&tree)
            }
            Set::Patched => {
                let mut names = self.of_tree(&self.workspace.tree())?;
                names.insert(self.fingerprint());
                Ok(names)
            }
            Set::Dispatch => {
                let mut names = Names::new();
                if !self.jit {
                    names.extend(dispatch_plan::kernels(self.target.has_nax())?.into_keys());
                    names.extend(dispatch_plan::dense_kernels()?);
                }
                names.extend(dispatch_plan::attention_kernels()?);
                names.insert(self.fingerprint());
                Ok(names)
            }
            Set::Path(path) if path.is_dir() => self.of_tree(path),
            Set::Path(path) => Ok(File::read(path)?.names),
        }
    }

    /// The kernel that names the tree of the overlay's library.
    fn fingerprint(&self) -> String {
        format!("{FINGERPRINT}{}", self.lock.final_tree)
    }

    fn of_tree(&self, tree: &Utf8Path) -> Result<Names> {
        if let Some(names) = self.read.borrow().get(tree) {
            return Ok(names.clone());
        }
        let library = instantiations(tree)?;
        let compiled = |name: &&str| {
            let source = library.entry(name).map(|entry| entry.source);
            let source = source.and_then(|source| library.sources().get(source));
            source.is_none_or(|source| self.target.compiles(&source.file))
        };
        let names: Names = library
            .names()
            .filter(compiled)
            .map(str::to_owned)
            .collect();
        self.read
            .borrow_mut()
            .insert(tree.to_owned(), names.clone());
        Ok(names)
    }
}

/// The names that the `.metal` files of an MLX tree instantiate, for all systems.
pub(crate) fn instantiations(tree: &Utf8Path) -> Result<Library> {
    if !tree.join("mlx").is_dir() {
        bail!("{tree} does not contain MLX; run `cargo xtask apply-overlay` to make vendor/mlx");
    }
    let toolchain = Toolchain::find(default_cache_folder())?;
    let path = library_of_tree(&toolchain, tree.as_std_path())
        .with_context(|| format!("cannot read the kernels of {tree}"))?;
    Ok(Library::read(&path)?)
}
