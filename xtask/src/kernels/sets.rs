//! Where kernel names come from: two trees, the dispatch, a file.

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

/// A set of names that a user asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Set {
    /// What the pinned MLX instantiates.
    Pristine,
    /// What the MLX in `vendor/mlx` instantiates, and the fingerprint.
    Patched,
    /// What the dispatch of quantized products can ask for, and the fingerprint.
    Dispatch,
    /// What a library file holds, or what the MLX tree in a folder instantiates.
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

/// The system that a library is for: it decides which sources MLX's CMake files compile.
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

    /// Whether the library has the kernels of a source.
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
    /// Trees that were looked at: reading one takes seconds.
    pub(super) read: RefCell<BTreeMap<Utf8PathBuf, Names>>,
    /// The library of a JIT build is asked for its fingerprint and attention alone: products' kernels are compiled from
    /// source text.
    pub(super) jit: bool,
}

impl Sets<'_> {
    /// The names of a set.
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

    /// The kernel that says which tree the overlay's library is of.
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

/// What the `.metal` files of an MLX tree instantiate, for all systems.
pub(crate) fn instantiations(tree: &Utf8Path) -> Result<Library> {
    if !tree.join("mlx").is_dir() {
        bail!("{tree} holds no MLX; `cargo xtask apply-overlay` makes vendor/mlx");
    }
    let toolchain = Toolchain::find(default_cache_folder())?;
    let path = library_of_tree(&toolchain, tree.as_std_path())
        .with_context(|| format!("cannot read the kernels of {tree}"))?;
    Ok(Library::read(&path)?)
}
