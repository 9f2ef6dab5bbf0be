//! A built MLX: where it lies, what its stamp says, and whether it is the one that the lock asks
//! for.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Name of the stamp in a prefix.
const STAMP: &str = "mlx-overlay.toml";
/// The layout of the stamp that this build script reads.
const FORMAT: u32 = 1;

/// What was asked for, by the environment and by the place where this crate lies.
pub(crate) struct Request {
    /// `MLX_OVERLAY_PREFIX`: the prefix to link, by name.
    pub(crate) prefix: Option<PathBuf>,
    /// `MLX_OVERLAY_PRISTINE=1`: link upstream's MLX without the overlay, as a reference.
    pub(crate) pristine: bool,
    /// The workspace, whose own build is taken when none is named.
    pub(crate) workspace: PathBuf,
    /// The lock to compare with.
    pub(crate) lock: PathBuf,
}

/// A prefix that may be linked.
#[derive(Debug)]
pub(crate) struct Prefix {
    /// Its folder, absolute, links resolved.
    pub(crate) root: PathBuf,
    /// What the build wrote into it.
    pub(crate) stamp: Stamp,
}

/// The stamp of a prefix, as `cargo xtask build` writes it.
#[derive(Debug, Deserialize)]
pub(crate) struct Stamp {
    /// Layout of this file.
    format: u32,
    /// MLX's version.
    pub(crate) version: String,
    /// Git tree id of the unpatched source.
    pub(crate) base_tree: String,
    /// Git tree id of the source that was built.
    pub(crate) final_tree: String,
    /// Whether that is the unpatched source.
    pub(crate) pristine: bool,
    /// `cpu`, `metal` or `sim`.
    pub(crate) backend: String,
    /// Whether Metal kernels are compiled at run time.
    pub(crate) jit: bool,
    /// Whether the CPU back-end is included.
    pub(crate) cpu: bool,
    /// Include folders, relative to the prefix.
    include: Vec<String>,
    /// Library folder, relative to the prefix.
    lib: String,
    /// Archives of this build.
    pub(crate) static_libs: Vec<String>,
    /// Libraries of the system.
    pub(crate) system_libs: Vec<String>,
    /// Folders of theirs that a linker may not search by itself.
    #[serde(default)]
    pub(crate) link_search: Vec<String>,
    /// Frameworks (macOS).
    #[serde(default)]
    pub(crate) frameworks: Vec<String>,
    /// Macros that a consumer has to define.
    pub(crate) defines: Vec<String>,
    /// C++ standard, as the compiler spells it.
    pub(crate) cxx_std: String,
    /// Compiled Metal kernels, relative to the prefix.
    metallib: Option<String>,
    /// Oldest macOS that MLX was built for.
    pub(crate) deployment_target: Option<String>,
    /// clang's runtime library (macOS).
    pub(crate) clang_rt: Option<PathBuf>,
}

/// The two ids of `mlx.lock` that decide what may be linked; the rest of the file is the engine's.
#[derive(Deserialize)]
struct Lock {
    base_tree: String,
    final_tree: String,
}

impl Request {
    /// The folder that is looked at.
    pub(crate) fn root(&self) -> PathBuf {
        self.prefix
            .clone()
            .unwrap_or_else(|| self.workspace.join("target/mlx/current"))
    }

    /// The prefix, if there is one and it was built from the tree that the lock names.
    ///
    /// # Errors
    ///
    /// One line that says what is missing or differs, and which command cures it.
    pub(crate) fn resolve(&self) -> Result<Prefix, String> {
        let command = if self.pristine {
            "cargo xtask build --pristine"
        } else {
            "cargo xtask build"
        };
        if self.pristine && self.prefix.is_none() {
            return Err(format!(
                "MLX_OVERLAY_PRISTINE=1 needs MLX_OVERLAY_PREFIX: name the prefix \
                 that `{command}` printed"
            ));
        }
        let root = self.root();
        if !root.join(STAMP).is_file() {
            return Err(format!(
                "no built MLX in `{}` (looked for {STAMP}): run `{command}`, or set \
                 MLX_OVERLAY_PREFIX to a prefix that it made",
                root.display()
            ));
        }
        let root = root
            .canonicalize()
            .map_err(|error| format!("{}: {error}", root.display()))?;
        let stamp: Stamp = read(&root.join(STAMP), command)?;
        if stamp.format != FORMAT {
            return Err(format!(
                "`{}` has format {}, this crate reads {FORMAT}: run `{command}` of the \
                 same checkout",
                root.join(STAMP).display(),
                stamp.format
            ));
        }
        let lock: Lock = read(&self.lock, "cargo xtask apply-overlay")?;
        let (wanted, name) = if self.pristine {
            (lock.base_tree, "base_tree")
        } else {
            (lock.final_tree, "final_tree")
        };
        if stamp.final_tree != wanted {
            return Err(format!(
                "the MLX in `{}` was built from tree {}, but {name} in mlx.lock is {wanted}: \
                 run `{command}`",
                root.display(),
                stamp.final_tree
            ));
        }
        Ok(Prefix { root, stamp })
    }
}

impl Prefix {
    /// Include folders, absolute.
    pub(crate) fn include(&self) -> Vec<PathBuf> {
        self.stamp
            .include
            .iter()
            .map(|folder| self.root.join(folder))
            .collect()
    }

    /// Library folder, absolute.
    pub(crate) fn lib(&self) -> PathBuf {
        self.root.join(&self.stamp.lib)
    }

    /// Compiled Metal kernels, absolute, where this build has any.
    pub(crate) fn metallib(&self) -> Option<PathBuf> {
        self.stamp
            .metallib
            .as_ref()
            .map(|file| self.root.join(file))
    }
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path, command: &str) -> Result<T, String> {
    let text = fs::read_to_string(path)
        .map_err(|error| format!("{}: {error}: run `{command}`", path.display()))?;
    // Only the message: toml's full text draws the line over several lines.
    toml::from_str(&text).map_err(|error| {
        format!(
            "{}: {}: run `{command}`",
            path.display(),
            error.message().replace('\n', " ")
        )
    })
}
