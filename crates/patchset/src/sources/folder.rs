//! What `--source` names: a folder, a git repository, or an archive.

use camino::Utf8Path;
use git2::{Oid, Repository};

use super::archive;
use super::carrier::Package;
use crate::error::{Error, Result};
use crate::model::manifest::{Pin, Source};
use crate::tree::Snapshot;

/// Reads the files; of a repository the pinned tree, whichever commit is checked out.
pub(super) fn bring(path: &Utf8Path, pin: &Pin, expected: Oid) -> Result<Snapshot> {
    if path.is_file() {
        return bring_archive(path, pin);
    }
    if !path.is_dir() {
        return Err(Error::source(
            path.as_str(),
            "expected a folder, a git repository or an archive; there is nothing",
        ));
    }
    if let Ok(repo) = Repository::open(path)
        && repo.find_tree(expected).is_ok()
    {
        return Snapshot::of_tree(&repo, expected);
    }
    Snapshot::of_dir(path)
}

fn bring_archive(path: &Utf8Path, pin: &Pin) -> Result<Snapshot> {
    let bytes = archive::read_file(path)?;
    let carrier = pin.sources.iter().find_map(|source| match source {
        Source::Carrier(carrier) => {
            let name = format!("{}-{}.crate", carrier.name, carrier.version);
            (path.file_name() == Some(&name)).then_some(carrier)
        }
        _ => None,
    });
    match carrier {
        Some(carrier) => {
            Package::Unpacked(archive::unpack(path.as_str(), &bytes, None)?).tree(carrier)
        }
        None => archive::unpack(path.as_str(), &bytes, None),
    }
}
