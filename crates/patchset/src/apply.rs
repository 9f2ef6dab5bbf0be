//! Makes `vendor/mlx`: the new tree is built next to it, hashed, and put in its place in one step.

use camino::{Utf8Path, Utf8PathBuf};
use git2::{Oid, Repository};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::fetch::next_lock;
use crate::model::lock::Lock;
use crate::place::disk;
use crate::place::vendor::Vendor;
use crate::place::workspace::Workspace;
use crate::progress::{Event, Progress};
use crate::project::Project;
use crate::sources::store::Store;
use crate::sources::{self, Fetched, Request};
use crate::state::{Inspection, State, applied, inspect};
use crate::tree::{File, Listing};

/// The tree to make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Target {
    /// The pinned MLX with the overlay.
    #[default]
    Applied,
    /// The pinned MLX without the overlay.
    Pristine,
}

/// Options of [`apply()`].
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub target: Target,
    /// Discard edits made by hand; a copy is kept.
    pub discard_edits: bool,
    /// Write the lock from the pin and the patches.
    pub update_lock: bool,
    /// Use no network.
    pub offline: bool,
    /// Where to get MLX from, instead of the pin's sources.
    pub source: Option<Utf8PathBuf>,
    /// The tree to use instead of a reconstructed one.
    pub accept: Option<Oid>,
}

/// The result of [`apply()`].
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The state before.
    pub before: State,
    /// The tree that is in place now.
    pub tree: Oid,
    /// Number of files that are new or changed.
    pub written: usize,
    /// Number of files that were removed.
    pub removed: usize,
    /// Where edited files were kept.
    pub kept_edits: Option<Utf8PathBuf>,
    /// Whether the lock was written.
    pub lock_written: bool,
    /// The result of the fetch, if there was one.
    pub fetched: Option<Fetched>,
}

/// Makes `vendor/mlx` the requested tree. An existing tree is hashed, and left alone if it is right.
///
/// # Errors
/// No source; a patch that does not apply exactly; a lock that does not match; files edited by hand; a full or
/// read-only disk. In every case `vendor/mlx` stays as it was.
pub fn apply(workspace: &Workspace, options: &Options, progress: Progress<'_>) -> Result<Outcome> {
    let (vendor, project) = Project::open_to_change(workspace, progress)?;
    let (pin, series) = (&project.manifest.mlx, &project.series);
    let old = project.locked.as_ref();

    progress(Event::Working("comparing vendor/mlx with the lock"));
    if let Ok(lock) = project.lock()
        && !options.update_lock
        && options.source.is_none()
        && options.accept.is_none()
    {
        let found = inspect(workspace, lock, series)?;
        let wanted = wanted_tree(options.target, lock);
        if found.tree == Some(wanted) {
            return Ok(Outcome::unchanged(found.state, wanted));
        }
    }

    if options.target == Target::Applied {
        project.within_budget()?;
    }
    let store = Store::open(workspace)?;
    let repo = store.overlay()?;
    let source = options.source.as_deref();
    let request = Request {
        pin,
        lock: old,
        offline: options.offline,
        refresh: false,
        source,
        accept: options.accept,
    };
    let fetched = sources::fetch(workspace, &store, request, progress)?;
    let lock = next_lock(&repo, pin, series, old, &fetched, options.update_lock)?;
    let found = inspect(workspace, &lock, series)?;
    let wanted = wanted_tree(options.target, &lock);
    let listing = Listing::of_tree(&repo, wanted)?;

    progress(Event::Working("building the new tree"));
    let kept_edits = keep_edits(&vendor, &found, options.discard_edits)?;
    if found.tree != Some(wanted) {
        replace(&vendor, &repo, &found.listing, &listing, wanted)?;
    }
    let lock_written = lock.save(workspace)?;
    let written = listing
        .0
        .iter()
        .filter(|(path, entry)| found.listing.0.get(*path) != Some(entry))
        .count();
    let removed = found
        .listing
        .0
        .keys()
        .filter(|path| !listing.0.contains_key(*path))
        .count();
    Ok(Outcome {
        before: found.state,
        tree: wanted,
        written,
        removed,
        kept_edits,
        lock_written,
        fetched: Some(fetched),
    })
}

/// Checks that the overlay is applied; changes nothing.
///
/// # Errors
/// See [`applied`]; a lock that does not match the pin and the patches.
pub fn check(workspace: &Workspace, progress: Progress<'_>) -> Result<Oid> {
    let project = Project::open(workspace, progress)?;
    let lock = project.lock()?;
    applied(workspace, lock, &project.series)
}

impl Outcome {
    fn unchanged(before: State, tree: Oid) -> Self {
        Self {
            before,
            tree,
            written: 0,
            removed: 0,
            kept_edits: None,
            lock_written: false,
            fetched: None,
        }
    }
}

fn wanted_tree(target: Target, lock: &Lock) -> Oid {
    match target {
        Target::Applied => lock.final_tree,
        Target::Pristine => lock.base_tree,
    }
}

/// Refuses to overwrite edits, or copies them to a folder.
fn keep_edits(vendor: &Vendor, found: &Inspection, discard: bool) -> Result<Option<Utf8PathBuf>> {
    let State::Tampered(edits) = &found.state else {
        return Ok(None);
    };
    if !discard {
        return Err(Error::Tampered(Box::new(edits.clone())));
    }
    let folder = vendor.edits();
    // A deleted file leaves nothing to keep.
    let mut kept = edits.paths();
    kept.retain(|path| found.listing.0.contains_key(path));
    for path in &kept {
        let to = folder.join(path);
        to.parent().map_or(Ok(()), disk::create_dir_all)?;
        disk::copy_with_time(&vendor.tree().join(path), &to)?;
    }
    Ok((!kept.is_empty()).then_some(folder))
}

/// Builds the new tree, records its files, and swaps it in. A failure leaves the old tree in place.
fn replace(
    vendor: &Vendor,
    repo: &Repository,
    old: &Listing,
    new: &Listing,
    wanted: Oid,
) -> Result<()> {
    let replaced = build(vendor, repo, old, new, wanted)
        .and_then(|()| vendor.remember(wanted, new))
        .and_then(|()| vendor.swap());
    if replaced.is_err() {
        // The unfinished tree is of no use; if it cannot be removed now, the next run removes it.
        let _ = disk::remove_tree(&vendor.next());
        return replaced;
    }
    // The new tree is in place, so an error would be misleading; an old listing that remains does no harm.
    let _ = vendor.forget_others(wanted);
    Ok(())
}

/// Builds the tree next to the old one. Unchanged files are hard links, so they keep their times; others are written
/// now, so that a build sees them as changed, even if an older content returns.
fn build(
    vendor: &Vendor,
    repo: &Repository,
    old: &Listing,
    new: &Listing,
    wanted: Oid,
) -> Result<()> {
    let (tree, next) = (vendor.tree(), vendor.next());
    let (same, changed): (Vec<_>, Vec<_>) = new
        .0
        .iter()
        .partition(|(path, entry)| old.0.get(*path) == Some(entry));
    let changed = changed
        .into_iter()
        .map(|(path, entry)| {
            Ok((
                path,
                File {
                    mode: entry.mode,
                    bytes: repo.find_blob(entry.blob)?.content().to_vec(),
                },
            ))
        })
        .collect::<Result<Vec<_>>>()?;

    disk::create_dir_all(&next)?;
    let mut folders: Vec<_> = new
        .0
        .keys()
        .filter_map(|path| Utf8Path::new(path).parent())
        .collect();
    folders.dedup();
    for folder in folders {
        disk::create_dir_all(&next.join(folder))?;
    }
    same.par_iter()
        .try_for_each(|(path, _)| link_or_copy(&tree.join(path), &next.join(path)))?;
    changed
        .par_iter()
        .try_for_each(|(path, file)| disk::write_new(&next.join(path), file))?;

    let found = Listing::of_dir(&next)?;
    if found != *new {
        let difference = Some(Box::new(new.difference(&found)));
        return Err(Error::TreeMismatch {
            expected: wanted,
            found: found.tree_id()?,
            difference,
        });
    }
    Ok(())
}

fn link_or_copy(from: &Utf8Path, to: &Utf8Path) -> Result<()> {
    match disk::hard_link(from, to) {
        Ok(()) => Ok(()),
        // Some file systems have no hard links.
        Err(_) => disk::copy_with_time(from, to),
    }
}
