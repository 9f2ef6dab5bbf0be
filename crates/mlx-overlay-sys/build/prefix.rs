//! A built MLX: where it lies, what its stamp says, and whether it is the one that the lock asks
//! for.

#[path = "remedy.rs"]
mod remedy;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Name of the stamp in a prefix.
pub(crate) const STAMP: &str = "mlx-overlay.toml";
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
    /// The folder of this package, where cargo runs its build script: a relative prefix is taken from there.
    pub(crate) package: PathBuf,
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
        match &self.prefix {
            Some(prefix) => self.package.join(prefix),
            None => self.workspace.join("target/mlx/current"),
        }
    }

    /// The prefix, if there is one, it was built from the tree that the lock names, and it is whole.
    ///
    /// # Errors
    ///
    /// One line that says what is missing or differs, and what cures it.
    pub(crate) fn resolve(&self) -> Result<Prefix, String> {
        self.check_name()?;
        let root = self.root();
        if !root.join(STAMP).is_file() {
            return Err(self.nothing_built(&root));
        }
        let root = root
            .canonicalize()
            .map_err(|error| format!("{}: {error}", root.display()))?;
        let again = self.again();
        let stamp: Stamp = read(&root.join(STAMP), &again)?;
        if stamp.format != FORMAT {
            return Err(format!(
                "`{}` has format {}, this crate reads {FORMAT}: {again}",
                root.join(STAMP).display(),
                stamp.format
            ));
        }
        let prefix = Prefix { root, stamp };
        self.check_tree(&prefix)?;
        match prefix.missing() {
            Some(missing) => Err(format!(
                "`{}` is missing or empty, which belongs to the built MLX: {again}",
                missing.display()
            )),
            None => Ok(prefix),
        }
    }

    fn check_name(&self) -> Result<(), String> {
        match &self.prefix {
            Some(prefix) if prefix.as_os_str().is_empty() => Err(self.empty_name()),
            None if self.pristine => Err(format!(
                "MLX_OVERLAY_PRISTINE=1 needs MLX_OVERLAY_PREFIX: name the prefix that `{}` printed",
                self.command()
            )),
            _ => Ok(()),
        }
    }

    fn check_tree(&self, prefix: &Prefix) -> Result<(), String> {
        let lock: Lock = read(&self.lock, "run `cargo xtask apply-overlay`")?;
        let (wanted, name) = if self.pristine {
            (lock.base_tree, "base_tree")
        } else {
            (lock.final_tree, "final_tree")
        };
        let found = &prefix.stamp.final_tree;
        if *found == wanted {
            return Ok(());
        }
        Err(format!(
            "the MLX in `{}` was built from tree {found}, but {name} in mlx.lock is {wanted}: {}",
            prefix.root.display(),
            self.same_revision()
        ))
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

    /// The first of its parts that is not there. Without the check a linker or a compiler would tell at length; and a
    /// program would take its kernels from where MLX was built, if they are still there.
    fn missing(&self) -> Option<PathBuf> {
        let libraries = self.stamp.static_libs.iter();
        let libraries = libraries.map(|name| self.lib().join(format!("lib{name}.a")));
        let whole =
            |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0);
        let file = libraries.chain(self.metallib()).find(|path| !whole(path));
        file.or_else(|| self.include().into_iter().find(|path| !path.is_dir()))
    }
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path, remedy: &str) -> Result<T, String> {
    let text = fs::read_to_string(path)
        .map_err(|error| format!("{}: {error}: {remedy}", path.display()))?;
    // Only the message: toml's full text draws the line over several lines.
    toml::from_str(&text).map_err(|error| {
        format!(
            "{}: {}: {remedy}",
            path.display(),
            error.message().replace('\n', " ")
        )
    })
}
