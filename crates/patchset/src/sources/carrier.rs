//! Packages on crates.io that contain the files of other projects. `cargo fetch` downloads them (with the user's
//! registry, mirror and proxy settings, or from cargo's cache when offline); nothing in them is ever compiled.

use std::env;

use camino::{Utf8Path, Utf8PathBuf};
use diffy::patch_set::{FileOperation, ParseOptions, PatchSet};
use fs_err as fs;
use serde::Deserialize;

use super::archive;
use crate::error::{Error, Result};
use crate::model::manifest::{Carrier, PinnedFile};
use crate::place::disk;
use crate::place::workspace::Workspace;
use crate::process;
use crate::progress::Progress;
use crate::tree::{Mode, Snapshot};

/// A package whose files can be read.
pub(crate) enum Package {
    /// The folder into which cargo unpacked it, and the checksum of the `.crate` that cargo verified.
    Folder {
        folder: Utf8PathBuf,
        checksum: String,
    },
    /// From a `.crate` file.
    Unpacked(Snapshot),
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: Utf8PathBuf,
}

impl Package {
    /// Makes cargo download a package and returns its folder.
    ///
    /// The package is a dependency of a temporary manifest: under `cfg(any())`, so that it is locked and downloaded but
    /// never compiled, and alone, because cargo rejects two packages that link the same library.
    pub(crate) fn fetch(
        workspace: &Workspace,
        name: &str,
        version: &str,
        offline: bool,
        progress: Progress<'_>,
    ) -> Result<Self> {
        let folder = workspace
            .cache()
            .join("carriers")
            .join(format!("{name}-{version}"));
        write_manifest(&folder, name, version)?;
        let cargo = |subcommand: &[&str]| {
            let mut command =
                process::command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            command.args(subcommand).current_dir(&folder);
            if offline {
                command.arg("--offline");
            }
            process::run(&mut command, progress)
        };
        cargo(&["fetch"])?;
        let metadata = cargo(&["metadata", "--format-version=1"])?;
        let metadata: Metadata = serde_json::from_str(&metadata)
            .map_err(|error| Error::source("cargo metadata", error))?;
        let package = metadata
            .packages
            .into_iter()
            .find(|package| package.name == name)
            .ok_or_else(|| Error::source("cargo metadata", format!("it does not list {name}")))?;
        let checksum = locked_checksum(&folder.join("Cargo.lock"), name)?;
        match package.manifest_path.parent() {
            Some(folder) => Ok(Self::Folder {
                folder: folder.to_owned(),
                checksum,
            }),
            None => Err(Error::source(package.manifest_path, "it has no folder")),
        }
    }

    /// The tree in the package, with its own patches reversed.
    pub(crate) fn tree(&self, carrier: &Carrier) -> Result<Snapshot> {
        let mut snapshot = match &carrier.archive {
            Some(file) => archive::unpack(&file.path, &self.pinned(file)?, Some(&carrier.path))?,
            None => self.folder(&carrier.path)?,
        };
        for file in carrier.reverse.iter().rev() {
            take_back(&mut snapshot, &file.path, &self.pinned(file)?)?;
        }
        Ok(snapshot)
    }

    /// The checksum of the package, if cargo printed it.
    pub(crate) fn checksum(&self) -> Option<&str> {
        match self {
            Self::Folder { checksum, .. } => Some(checksum),
            Self::Unpacked(_) => None,
        }
    }

    /// One file of the package.
    pub(crate) fn file(&self, path: &str) -> Result<Vec<u8>> {
        match self {
            Self::Folder { folder, .. } => archive::read_file(&folder.join(path)),
            Self::Unpacked(snapshot) => snapshot
                .0
                .get(path)
                .map(|file| file.bytes.clone())
                .ok_or_else(|| Error::source(path, "the package does not contain it")),
        }
    }

    fn pinned(&self, file: &PinnedFile) -> Result<Vec<u8>> {
        let bytes = self.file(&file.path)?;
        archive::check_sum(&file.path, &bytes, &file.sha256)?;
        Ok(bytes)
    }

    fn folder(&self, path: &str) -> Result<Snapshot> {
        match self {
            Self::Folder { folder, .. } => Snapshot::of_dir(&folder.join(path)),
            Self::Unpacked(snapshot) => {
                let prefix = format!("{path}/");
                let files = snapshot
                    .0
                    .iter()
                    .filter_map(|(path, file)| {
                        Some((path.strip_prefix(&prefix)?.to_owned(), file.clone()))
                    })
                    .collect();
                Ok(Snapshot(files))
            }
        }
    }
}

/// The checksum that cargo locked for a package.
fn locked_checksum(file: &Utf8Path, name: &str) -> Result<String> {
    #[derive(Deserialize)]
    struct CargoLock {
        package: Vec<LockedPackage>,
    }
    #[derive(Deserialize)]
    struct LockedPackage {
        name: String,
        checksum: Option<String>,
    }
    let lock: CargoLock = toml::from_str(&fs::read_to_string(file)?)
        .map_err(|error| Error::source(file.as_str(), error.message()))?;
    lock.package
        .into_iter()
        .find(|package| package.name == name)
        .and_then(|package| package.checksum)
        .ok_or_else(|| Error::source(file.as_str(), format!("it has no checksum of {name}")))
}

fn write_manifest(folder: &Utf8Path, name: &str, version: &str) -> Result<()> {
    let manifest = format!(
        "# Written by `cargo xtask fetch`: has cargo download the package, compiles nothing.\n\
         [package]\nname = \"carrier\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n\
         [workspace]\n\n\
         [target.'cfg(any())'.dependencies]\n{name} = \"={version}\"\n"
    );
    fs::create_dir_all(folder.join("src"))?;
    for (path, text) in [("Cargo.toml", manifest.as_str()), ("src/lib.rs", "")] {
        let path = folder.join(path);
        if fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        disk::replace(&path, text.as_bytes())?;
    }
    Ok(())
}

/// Reverses a patch. The carrier's patches apply with an offset, which diffy follows; the tree id shows whether the
/// result is right.
fn take_back(snapshot: &mut Snapshot, name: &str, patch: &[u8]) -> Result<()> {
    for part in PatchSet::parse_bytes(patch, ParseOptions::gitdiff()) {
        let part = part.map_err(|error| Error::source(name, error))?;
        let FileOperation::Modify { modified, .. } = part.operation().strip_prefix(1) else {
            return Err(Error::source(name, "it does more than edit files"));
        };
        let path = String::from_utf8_lossy(&modified).into_owned();
        let Some(text) = part.patch().as_text() else {
            return Err(Error::source(
                name,
                format!("it changes {path}, a binary file"),
            ));
        };
        let file = snapshot
            .0
            .get_mut(&path)
            .filter(|file| file.mode != Mode::Link)
            .ok_or_else(|| {
                Error::source(name, format!("it changes {path}, which does not exist"))
            })?;
        file.bytes = diffy::apply_bytes(&file.bytes, &text.reverse()).map_err(|error| {
            Error::source(name, format!("it cannot be reversed in {path}: {error}"))
        })?;
    }
    Ok(())
}
