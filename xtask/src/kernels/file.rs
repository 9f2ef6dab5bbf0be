//! A library file: Apple's container, or the simulated device's.

use std::collections::BTreeSet;
use std::io::Read;

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use metallib::{TargetOs, Version};
use mlx_prefix::Stamp;

/// The kernel that carries a tree id is named by this prefix and the id (`patches/files/mlx/backend/metal/rows.cmake`).
pub(crate) const FINGERPRINT: &str = "mlx_overlay_tree_";

pub(crate) type Names = BTreeSet<String>;

/// A library file after reading.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: Utf8PathBuf,
    pub(crate) size: u64,
    pub(crate) names: Names,
    /// The header of Apple's container; `None` for the simulated device's.
    pub(crate) container: Option<Container>,
    /// The stamp of the prefix in which the file is installed.
    pub(crate) stamp: Option<Stamp>,
}

/// Header and versions of Apple's container.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) version: Version,
    pub(crate) os: TargetOs,
    /// The oldest version of `os` that loads the file.
    pub(crate) minimum_os: Version,
    /// The newest language version of the functions.
    pub(crate) language: Option<Version>,
    /// Functions whose code does not match its stored SHA-256.
    pub(crate) damaged: Names,
}

impl File {
    /// Reads the names and versions in `path` and verifies its checksums.
    pub(crate) fn read(path: &Utf8Path) -> Result<Self> {
        let mut start = Vec::new();
        let opened = fs_err::File::open(path)?;
        let size = opened.metadata()?.len();
        opened.take(16).read_to_end(&mut start)?;
        let mut file = Self {
            path: path.to_owned(),
            size,
            names: Names::new(),
            container: None,
            stamp: stamp_beside(path),
        };
        if start.starts_with(b"MTLB") {
            file.read_apple()
                .with_context(|| format!("{path} is not a complete metallib"))?;
        } else if start.starts_with(b"mtlsim-metallib") {
            let library = metal_sim::Library::read(path.as_std_path())?;
            file.names = library.names().map(str::to_owned).collect();
        } else {
            // The reader's own message: it recognizes wheels, bitcode and other files that people confuse with a
            // metallib.
            match metallib::Library::parse(&start) {
                Err(error) => bail!("{path} is not a metallib: {error}"),
                Ok(_) => bail!("{path} is not a metallib"),
            }
        }
        Ok(file)
    }

    fn read_apple(&mut self) -> Result<()> {
        let map = metallib::map_file(&self.path)?;
        let library = metallib::Library::parse(&map)?;
        let header = library.header();
        let mut language = None;
        for function in library.functions() {
            let function = function?;
            language = language.max(function.language_version);
            self.names.insert(function.name.to_owned());
        }
        let mut wrong = library.verify()?.mismatches.into_iter().peekable();
        let mut damaged = Names::new();
        if wrong.peek().is_some() {
            for function in library.functions() {
                let function = function?;
                if wrong.next_if_eq(&function.index).is_some() {
                    damaged.insert(function.name.to_owned());
                }
            }
        }
        self.container = Some(Container {
            version: header.container_version,
            os: header.os,
            minimum_os: header.os_version,
            language,
            damaged,
        });
        Ok(())
    }

    /// The id of the tree that the file was built from, as the file states it.
    pub(crate) fn tree(&self) -> Option<&str> {
        self.names
            .range(FINGERPRINT.to_owned()..)
            .next()?
            .strip_prefix(FINGERPRINT)
    }
}

/// The stamp in `<prefix>` for `<prefix>/lib/mlx.metallib`.
fn stamp_beside(path: &Utf8Path) -> Option<Stamp> {
    Stamp::read(path.parent()?.parent()?).ok()
}

/// The first macOS that loads functions of a language version, if known (MLX's `get_metal_version`, in device.cpp).
pub(super) fn first_macos(language: Version) -> Option<Version> {
    let (major, minor) = match (language.major, language.minor) {
        (3, 1) => (14, 0),
        (3, 2) => (15, 0),
        (4, 0) => (26, 0),
        (4, 1) => (27, 0),
        _ => return None,
    };
    Some(Version { major, minor })
}
