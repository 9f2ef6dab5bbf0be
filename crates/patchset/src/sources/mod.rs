//! Fetches the pinned tree into the [`Store`]. Content decides: any source counts if its files hash to the pinned tree
//! id.

pub(crate) mod address;
pub(crate) mod archive;
mod carrier;
mod git;
pub mod inputs;
pub(crate) mod local;
pub mod store;
mod wheel;

use camino::Utf8Path;
use git2::Oid;

use crate::error::{Error, Result};

use crate::model::lock::{Confirmed, Lock, Replaced, Verdict, base_tree};
use crate::model::manifest::{Pin, Source, TreeOrigin};
use crate::place::workspace::Workspace;
use crate::progress::{Event, Progress};
use crate::sources::store::Store;
use crate::tree::{Listing, Snapshot};

use address::{is_remote, without_credentials};
use archive::download;
use carrier::Package;

pub(crate) use git::fetch_name;

pub use crate::error::SourceFailure;
pub use archive::unpack;

/// A request to fetch a tree.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub pin: &'a Pin,
    /// The lock, which may record an earlier confirmation by git.
    pub lock: Option<&'a Lock>,
    /// Use no network; cargo's own cache still counts.
    pub offline: bool,
    /// Fetch again even if the tree is here.
    pub refresh: bool,
    /// A folder, repository or archive to use instead of the pin's sources.
    pub source: Option<&'a Utf8Path>,
    /// The tree that the user accepts instead of a reconstructed one.
    pub accept: Option<Oid>,
}

/// The result of [`fetch()`].
#[derive(Debug, Clone)]
pub struct Fetched {
    /// The tree, now complete in the store.
    pub tree: Oid,
    /// A description of its source.
    pub source: String,
    /// The verdict of this fetch on a reconstructed pin.
    pub verdict: Option<Verdict>,
    /// Sources that were tried before and failed.
    pub failures: Vec<SourceFailure>,
    /// Whether nothing was fetched because the store had the tree.
    pub cached: bool,
}

/// The content of a source before it is accepted.
enum Brought {
    /// Files to hash, and the checksum of the package that had them.
    Files {
        snapshot: Snapshot,
        checksum: Option<String>,
    },
    /// The commit that a git source has for the pinned tag or commit; its objects are in the store.
    Commit { commit: Oid, tree: Oid },
}

/// Fetches the pinned tree into the store, or the tree that the user accepts instead.
///
/// # Errors
/// [`Error::Sources`] with every source's error if all of them fail.
pub fn fetch(
    workspace: &Workspace,
    store: &Store,
    request: Request<'_>,
    progress: Progress<'_>,
) -> Result<Fetched> {
    let pin = request.pin;
    if request.accept.is_some_and(|tree| tree != pin.tree)
        && pin.tree_origin != TreeOrigin::Reconstructed
    {
        return Err(Error::NotReplaceable(pin.tree));
    }
    let expected = request
        .accept
        .unwrap_or_else(|| base_tree(pin, request.lock));
    if request.source.is_none()
        && !request.refresh
        && let Some(source) = store.source_of(expected)
    {
        return Ok(Fetched {
            tree: expected,
            source,
            verdict: verdict(request, expected, None),
            failures: Vec::new(),
            cached: true,
        });
    }
    match request.source {
        Some(path) => fetch_local(workspace, store, request, path, expected, progress),
        None => fetch_pinned(workspace, store, request, expected, progress),
    }
}

/// A source with other files than the pinned ones, by its position among the failures.
struct Other {
    at: usize,
    found: Oid,
    listing: Listing,
}

fn fetch_pinned(
    workspace: &Workspace,
    store: &Store,
    request: Request<'_>,
    expected: Oid,
    progress: Progress<'_>,
) -> Result<Fetched> {
    let mut failures: Vec<SourceFailure> = Vec::new();
    // Compared file by file once the right ones are here.
    let mut others: Vec<Other> = Vec::new();
    for source in &request.pin.sources {
        let mut name = describe(source, request.pin);
        progress(Event::Trying(&name));
        let brought = bring(workspace, store, request, source, progress)
            .and_then(|brought| check(store, request.pin, brought, expected, &mut name));
        let (reason, other) = match brought {
            Ok(Checked::Right(commit)) => {
                let fetched = Fetched {
                    tree: expected,
                    source: name,
                    verdict: verdict(request, expected, commit),
                    failures,
                    cached: false,
                };
                return finish(store, fetched, others, progress);
            }
            Ok(Checked::Other(found, listing)) => {
                let at = failures.len();
                let error = mismatch(store, expected, found, &listing)?;
                others.push(Other { at, found, listing });
                (error.to_string(), Some(found))
            }
            Err(error) => (error.to_string(), None),
        };
        // A different tree is reported later, when the difference can be shown.
        if other.is_none() {
            progress(Event::Skipped(&format!("{name}: {reason}")));
        }
        failures.push(SourceFailure {
            source: name,
            reason,
            other,
        });
    }
    Err(Error::Sources {
        version: request.pin.version.clone(),
        expected,
        failures,
    })
}

fn fetch_local(
    workspace: &Workspace,
    store: &Store,
    request: Request<'_>,
    path: &Utf8Path,
    expected: Oid,
    progress: Progress<'_>,
) -> Result<Fetched> {
    let name = path.to_string();
    progress(Event::Trying(&name));
    let snapshot = local::bring(path, request.pin, expected)?;
    let (found, listing) = match accept(store, &snapshot, expected, &name)? {
        Accepted::Yes => {
            return Ok(Fetched {
                tree: expected,
                source: name,
                verdict: verdict(request, expected, None),
                failures: Vec::new(),
                cached: false,
            });
        }
        Accepted::No(found, listing) => (found, listing),
    };
    // The pin's own sources know which files differ.
    if store.source_of(expected).is_none() {
        let _ = fetch_pinned(workspace, store, request, expected, progress);
    }
    let failures = vec![SourceFailure {
        source: name,
        reason: mismatch(store, expected, found, &listing)?.to_string(),
        other: Some(found),
    }];
    Err(Error::Sources {
        version: request.pin.version.clone(),
        expected,
        failures,
    })
}

/// Reports how the sources with another tree differ, and that they were skipped.
fn finish(
    store: &Store,
    mut fetched: Fetched,
    others: Vec<Other>,
    progress: Progress<'_>,
) -> Result<Fetched> {
    for Other { at, found, listing } in others {
        let failure = &mut fetched.failures[at];
        failure.reason = mismatch(store, fetched.tree, found, &listing)?.to_string();
        progress(Event::Skipped(&failure.to_string()));
    }
    Ok(fetched)
}

/// The verdict on a reconstructed pin, from the fetched tree and from the commit if git had it.
fn verdict(request: Request<'_>, tree: Oid, commit: Option<Oid>) -> Option<Verdict> {
    let pin = request.pin;
    if pin.tree_origin != TreeOrigin::Reconstructed {
        None
    } else if tree == pin.tree {
        commit.map(|commit| Verdict::Confirmed(Confirmed { commit, tree }))
    } else if request.accept == Some(tree) {
        let pinned = pin.tree;
        Some(Verdict::Replaced(Replaced {
            tree,
            pinned,
            commit,
        }))
    } else {
        None
    }
}

/// The content of a source, compared with what is expected.
enum Checked {
    /// The right tree, now marked as complete in the store; the commit, if git has it.
    Right(Option<Oid>),
    /// A different tree.
    Other(Oid, Listing),
}

fn check(
    store: &Store,
    pin: &Pin,
    brought: Brought,
    expected: Oid,
    name: &mut String,
) -> Result<Checked> {
    match brought {
        Brought::Commit { commit, tree } => {
            if let Some(known) = &pin.commit
                && !pin.is_commit(commit)
            {
                let message = format!("expected commit {known}, {} is at {commit}", pin.name());
                return Err(Error::source("git", message));
            }
            *name += &format!(", commit {commit}");
            let listing = Listing::of_tree(store.repo(), tree)?;
            listing.check_size(store.repo(), tree)?;
            if tree != expected {
                return Ok(Checked::Other(tree, listing));
            }
            store.adopt(tree, name)?;
            Ok(Checked::Right(Some(commit)))
        }
        Brought::Files { snapshot, checksum } => {
            if let Some(checksum) = checksum {
                *name += &format!(" (sha256 {checksum})");
            }
            Ok(match accept(store, &snapshot, expected, name)? {
                Accepted::Yes => Checked::Right(None),
                Accepted::No(found, listing) => Checked::Other(found, listing),
            })
        }
    }
}

enum Accepted {
    Yes,
    No(Oid, Listing),
}

fn accept(store: &Store, snapshot: &Snapshot, expected: Oid, name: &str) -> Result<Accepted> {
    let listing = snapshot.listing()?;
    let found = listing.tree_id()?;
    if found == expected {
        store.insert(snapshot, &listing)?;
        store.adopt(expected, name)?;
        return Ok(Accepted::Yes);
    }
    Ok(Accepted::No(found, listing))
}

/// The error for a different tree, file by file if the expected tree is here.
fn mismatch(store: &Store, expected: Oid, found: Oid, listing: &Listing) -> Result<Error> {
    let difference = match store.source_of(expected) {
        Some(_) => Some(Box::new(
            Listing::of_tree(store.repo(), expected)?.difference(listing),
        )),
        None => None,
    };
    Ok(Error::TreeMismatch {
        expected,
        found,
        difference,
    })
}

fn bring(
    workspace: &Workspace,
    store: &Store,
    request: Request<'_>,
    source: &Source,
    progress: Progress<'_>,
) -> Result<Brought> {
    match source {
        Source::Git(source) => {
            if request.offline && is_remote(&source.url) {
                let url = without_credentials(&source.url);
                return Err(Error::source(url, "not tried: offline"));
            }
            let (commit, tree) = git::fetch(store, &source.url, request.pin, progress)?;
            Ok(Brought::Commit { commit, tree })
        }
        Source::Carrier(carrier) => {
            let package = Package::fetch(
                workspace,
                &carrier.name,
                &carrier.version,
                request.offline,
                progress,
            )?;
            let checksum = package.checksum().map(str::to_owned);
            package
                .tree(carrier)
                .map(|snapshot| Brought::Files { snapshot, checksum })
        }
        Source::Archive(archive) => {
            if request.offline {
                return Err(Error::source(&archive.url, "not tried: offline"));
            }
            let bytes = download(&archive.url, &archive.sha256)?;
            unpack(&archive.url, &bytes, Some(&archive.path)).map(|snapshot| Brought::Files {
                snapshot,
                checksum: None,
            })
        }
    }
}

/// The files of a folder or an archive.
pub(crate) fn unpack_or_read(path: &Utf8Path) -> Result<Snapshot> {
    if path.is_dir() {
        return Snapshot::of_dir(path);
    }
    unpack(path.as_str(), &archive::read_file(path)?, None)
}

/// A description of a source, which is stored and committed.
fn describe(source: &Source, pin: &Pin) -> String {
    match source {
        Source::Git(source) => format!("git {} {}", without_credentials(&source.url), pin.name()),
        Source::Carrier(carrier) => {
            format!("crates.io carrier {} {}", carrier.name, carrier.version)
        }
        Source::Archive(archive) => format!("archive {}", without_credentials(&archive.url)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source's description is written to reports and to the cache.
    #[test]
    fn a_source_is_named_without_a_token() {
        let sum = "0".repeat(64);
        let pin = format!(
            "version = '1.0.0'\ntree = '0b3dbfacac35a0b64a7c3d9a778ef20db788f565'\ntree-origin = 'upstream'\n\
             licence = 'MIT'\n[[source]]\ngit = {{ url = 'https://me:TOKEN@a.org/mlx' }}\n[[source]]\n\
             archive = {{ url = 'https://me:TOKEN@a.org/mlx.tgz', sha256 = '{sum}', path = 'mlx' }}\n"
        );
        let pin: Pin = toml::from_str(&pin).unwrap();
        let names: Vec<_> = pin
            .sources
            .iter()
            .map(|source| describe(source, &pin))
            .collect();
        assert_eq!(
            names,
            [
                "git https://a.org/mlx 1.0.0",
                "archive https://a.org/mlx.tgz"
            ]
        );
    }
}
