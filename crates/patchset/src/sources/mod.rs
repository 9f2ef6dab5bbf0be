//! Brings the pinned tree into the [`Store`]. Content decides: whoever brings it, it counts if it hashes to the pinned
//! tree id.

pub(crate) mod archive;
mod carrier;
mod folder;
mod git;
pub mod inputs;
pub mod store;

use camino::Utf8Path;
use git2::Oid;

use crate::error::{Error, Result};

use crate::model::lock::{Confirmed, Lock, base_tree};
use crate::model::manifest::{Pin, Source, TreeOrigin};
use crate::place::workspace::Workspace;
use crate::progress::{Event, Progress};
use crate::sources::store::Store;
use crate::tree::{Listing, Snapshot};

use archive::download;
use carrier::Package;

pub(crate) use git::fetch_name;

pub use crate::error::SourceFailure;
pub use archive::unpack;

/// What to fetch, and how.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The pin.
    pub pin: &'a Pin,
    /// The lock, which may hold what git confirmed earlier.
    pub lock: Option<&'a Lock>,
    /// Use no network; cargo's own cache still counts.
    pub offline: bool,
    /// Ask the sources although the tree is here.
    pub refresh: bool,
    /// A folder, repository or archive to take instead of the pin's sources.
    pub source: Option<&'a Utf8Path>,
}

/// What a fetch came to.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// The tree, now whole in the store.
    pub tree: Oid,
    /// Who brought it, in words.
    pub source: String,
    /// The commit and tree that a git source gave for a reconstructed pin.
    pub confirmed: Option<Confirmed>,
    /// Sources that were tried before and did not do.
    pub failures: Vec<SourceFailure>,
    /// Nothing was fetched: the store had it.
    pub cached: bool,
}

/// What a source holds, before it is accepted.
enum Brought {
    /// Files, to be hashed, and the sum of the package that held them.
    Files {
        snapshot: Snapshot,
        checksum: Option<String>,
    },
    /// The commit that a git source gave for the pinned tag or commit; its objects are in the store.
    Commit { commit: Oid, tree: Oid },
}

/// Brings the pinned tree into the store.
///
/// # Errors
/// [`Error::Sources`] with every source's reason where none of them does.
pub fn fetch(
    workspace: &Workspace,
    store: &Store,
    request: Request<'_>,
    progress: Progress<'_>,
) -> Result<Fetched> {
    let expected = base_tree(request.pin, request.lock);
    if request.source.is_none()
        && !request.refresh
        && let Some(source) = store.source_of(expected)
    {
        return Ok(Fetched {
            tree: expected,
            source,
            confirmed: None,
            failures: Vec::new(),
            cached: true,
        });
    }
    match request.source {
        Some(path) => fetch_local(workspace, store, request, path, expected, progress),
        None => fetch_pinned(workspace, store, request, expected, progress),
    }
}

fn fetch_pinned(
    workspace: &Workspace,
    store: &Store,
    request: Request<'_>,
    expected: Oid,
    progress: Progress<'_>,
) -> Result<Fetched> {
    let mut failures: Vec<SourceFailure> = Vec::new();
    // Files of sources that brought another tree; named file by file once the right one is here.
    let mut others: Vec<(usize, Listing)> = Vec::new();
    for source in &request.pin.sources {
        let name = describe(source, request.pin);
        progress(Event::Trying(&name));
        let reason = match bring(workspace, store, request, source, progress) {
            Ok(Brought::Commit { commit, tree }) => {
                match judge(request.pin, expected, commit, tree) {
                    Ok(confirmed) => {
                        store.adopt(tree, &format!("{name}, commit {commit}"))?;
                        return finish(store, tree, name, confirmed, failures, others);
                    }
                    Err(error) => error.to_string(),
                }
            }
            Ok(Brought::Files { snapshot, checksum }) => {
                let name = match checksum {
                    Some(checksum) => format!("{name} (sha256 {checksum})"),
                    None => name.clone(),
                };
                match accept(store, &snapshot, expected, &name)? {
                    Accepted::Yes => return finish(store, expected, name, None, failures, others),
                    Accepted::No(listing, error) => {
                        others.push((failures.len(), listing));
                        error.to_string()
                    }
                }
            }
            Err(error) => error.to_string(),
        };
        progress(Event::Skipped(&format!("{name}: {reason}")));
        failures.push(SourceFailure {
            source: name,
            reason,
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
    let snapshot = folder::bring(path, request.pin, expected)?;
    let (found, mut error) = match accept(store, &snapshot, expected, &name)? {
        Accepted::Yes => return finish(store, expected, name, None, Vec::new(), Vec::new()),
        Accepted::No(listing, error) => (listing, error),
    };
    // The pin's own sources can tell which files differ.
    if let Error::TreeMismatch {
        difference: difference @ None,
        ..
    } = &mut error
        && fetch_pinned(workspace, store, request, expected, progress)
            .is_ok_and(|fetched| fetched.tree == expected)
    {
        *difference = Some(Box::new(
            Listing::of_tree(store.repo(), expected)?.difference(&found),
        ));
    }
    let failures = vec![SourceFailure {
        source: name,
        reason: error.to_string(),
    }];
    Err(Error::Sources {
        version: request.pin.version.clone(),
        expected,
        failures,
    })
}

fn finish(
    store: &Store,
    tree: Oid,
    source: String,
    confirmed: Option<Confirmed>,
    mut failures: Vec<SourceFailure>,
    others: Vec<(usize, Listing)>,
) -> Result<Fetched> {
    if !others.is_empty() {
        let reference = Listing::of_tree(store.repo(), tree)?;
        for (index, found) in others {
            let difference = Some(Box::new(reference.difference(&found)));
            failures[index].reason = Error::TreeMismatch {
                expected: tree,
                found: found.tree_id()?,
                difference,
            }
            .to_string();
        }
    }
    Ok(Fetched {
        tree,
        source,
        confirmed,
        failures,
        cached: false,
    })
}

/// Whether a git source's commit is the pinned one, and what that says about a reconstructed tree id.
fn judge(pin: &Pin, expected: Oid, commit: Oid, tree: Oid) -> Result<Option<Confirmed>> {
    match &pin.commit {
        Some(known) if !pin.is_commit(commit) => {
            let message = format!("expected commit {known}, {} is at {commit}", pin.name());
            Err(Error::source("git", message))
        }
        // Without a commit the tag alone is no proof: the id must match.
        Some(_) if pin.tree_origin == TreeOrigin::Reconstructed => {
            Ok(Some(Confirmed { commit, tree }))
        }
        _ if tree == expected => Ok(None),
        _ => Err(Error::TreeMismatch {
            expected,
            found: tree,
            difference: None,
        }),
    }
}

enum Accepted {
    Yes,
    No(Listing, Error),
}

fn accept(store: &Store, snapshot: &Snapshot, expected: Oid, name: &str) -> Result<Accepted> {
    let listing = snapshot.listing()?;
    let found = listing.tree_id()?;
    if found == expected {
        store.insert(snapshot, &listing)?;
        store.adopt(expected, name)?;
        return Ok(Accepted::Yes);
    }
    let difference = match store.source_of(expected) {
        Some(_) => Some(Box::new(
            Listing::of_tree(store.repo(), expected)?.difference(&listing),
        )),
        None => None,
    };
    Ok(Accepted::No(
        listing,
        Error::TreeMismatch {
            expected,
            found,
            difference,
        },
    ))
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
                return Err(Error::source(&source.url, "not asked: offline"));
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
                return Err(Error::source(&archive.url, "not asked: offline"));
            }
            let bytes = download(&archive.url, &archive.sha256)?;
            unpack(&archive.url, &bytes, Some(&archive.path)).map(|snapshot| Brought::Files {
                snapshot,
                checksum: None,
            })
        }
    }
}

/// Whether a repository's address leads off this machine.
pub(crate) fn is_remote(url: &str) -> bool {
    !url.starts_with("file://") && !Utf8Path::new(url).exists()
}

fn describe(source: &Source, pin: &Pin) -> String {
    match source {
        Source::Git(source) => format!("git {} {}", source.url, pin.name()),
        Source::Carrier(carrier) => {
            format!("crates.io carrier {} {}", carrier.name, carrier.version)
        }
        Source::Archive(archive) => format!("archive {}", archive.url),
    }
}
