//! The files in `vendor/` next to the tree, and how the tree is replaced in one step.
//!
//! - `mlx.next/` the unfinished new tree; after the exchange the old one, until it is removed
//! - `mlx.old/` the old tree, on file systems that cannot exchange two folders
//! - `.mlx-placed/<tree id>` the listing of a tree that was placed, to name edited files later
//! - `.mlx-lock` held by the run that changes any of these
//! - `mlx-edits-<n>/` edited files that `--discard-edits` removed

use std::io::ErrorKind;

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use git2::Oid;

use crate::error::Result;
use crate::place::disk;
use crate::place::holder::{self, Held, Kind};
use crate::place::workspace::Workspace;
use crate::place::{exchange, journal};
use crate::progress::{Event, Progress};
use crate::read;
use crate::tree::{Entry, Listing, Mode};

const LOCK: &str = ".mlx-lock";

/// `vendor/` while only this run may change it. The lock ends with the process.
pub(crate) struct Vendor {
    folder: Utf8PathBuf,
    _lock: Held,
}

impl Vendor {
    /// Waits for other runs, then finishes what a killed run decided and removes what else it left.
    pub(crate) fn lock(workspace: &Workspace, progress: Progress<'_>) -> Result<Self> {
        let folder = workspace.vendor();
        disk::create_dir_all(&folder)?;
        let path = folder.join(LOCK);
        let file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)?
            .into_parts()
            .0;
        let waits = |for_whom: &str| progress(Event::Waiting(for_whom));
        let vendor = Self {
            folder,
            _lock: Held::take(file, &path, Kind::Alone, waits)?,
        };
        vendor.recover()?;
        journal::recover(workspace)?;
        Ok(vendor)
    }

    /// Waits until no run changes `vendor/`, and blocks runs that would, until the file is dropped. `None` if there is
    /// no lock file yet. A change that a killed run decided is finished first.
    pub(crate) fn lock_to_read(
        workspace: &Workspace,
        progress: Progress<'_>,
    ) -> Result<Option<Held>> {
        loop {
            let held = Self::share(workspace, progress)?;
            if !journal::waits(workspace) {
                return Ok(held);
            }
            drop(held);
            Self::lock(workspace, progress)?;
        }
    }

    fn share(workspace: &Workspace, progress: Progress<'_>) -> Result<Option<Held>> {
        let path = workspace.vendor().join(LOCK);
        let file = match fs::File::open(&path) {
            Ok(file) => file.into_parts().0,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let waits = |for_whom: &str| progress(Event::Waiting(for_whom));
        Ok(Some(Held::take(file, &path, Kind::Shared, waits)?))
    }

    /// A description of the run that is changing the project; `None` if it can be read at once.
    pub(crate) fn holder(workspace: &Workspace) -> Result<Option<String>> {
        Ok(holder::of(&workspace.vendor().join(LOCK), Kind::Shared)?)
    }

    pub(crate) fn tree(&self) -> Utf8PathBuf {
        self.folder.join("mlx")
    }

    /// The folder in which the next tree is made.
    pub(crate) fn next(&self) -> Utf8PathBuf {
        self.folder.join("mlx.next")
    }

    fn old(&self) -> Utf8PathBuf {
        self.folder.join("mlx.old")
    }

    /// A new folder for edited files.
    pub(crate) fn edits(&self) -> Utf8PathBuf {
        let mut number = 1;
        loop {
            let folder = self.folder.join(format!("mlx-edits-{number}"));
            if !folder.exists() {
                return folder;
            }
            number += 1;
        }
    }

    /// Puts the next tree in the tree's place. The place always has the old tree or the new one. Only if folders cannot
    /// be exchanged, it may be empty after a kill; then the next run puts the old tree back.
    pub(crate) fn swap(&self) -> Result<()> {
        exchange::put(&self.next(), &self.tree(), &self.old())?;
        // The new tree is in place; if the old one cannot be removed now, the next run reports why.
        let _ = disk::remove_tree(&self.next());
        Ok(())
    }

    fn recover(&self) -> Result<()> {
        exchange::recover(&self.tree(), &self.old())?;
        disk::remove_tree(&self.next())
    }

    /// Records the listing of a tree before it is placed.
    pub(crate) fn remember(&self, tree: Oid, listing: &Listing) -> Result<()> {
        let folder = placed_folder(&self.folder);
        disk::create_dir_all(&folder)?;
        disk::replace(&folder.join(tree.to_string()), to_text(listing).as_bytes())
    }

    /// Removes all listings except that of the current tree.
    pub(crate) fn forget_others(&self, tree: Oid) -> Result<()> {
        let keep = tree.to_string();
        for entry in placed_folder(&self.folder).read_dir_utf8()? {
            let entry = entry?;
            if entry.file_name() != keep {
                disk::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// The listings of placed trees; damaged ones are left out.
pub(crate) fn placed(workspace: &Workspace) -> Vec<(Oid, Listing)> {
    let Ok(entries) = placed_folder(&workspace.vendor()).read_dir_utf8() else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let tree = read::oid(entry.file_name()).ok()?;
            let listing = from_text(&fs::read_to_string(entry.path()).ok()?)?;
            (listing.tree_id().ok()? == tree).then_some((tree, listing))
        })
        .collect()
}

fn placed_folder(vendor: &Utf8Path) -> Utf8PathBuf {
    vendor.join(".mlx-placed")
}

/// One file per line: mode, blob id, path.
fn to_text(listing: &Listing) -> String {
    listing
        .0
        .iter()
        .map(|(path, entry)| format!("{} {} {path}\n", entry.mode.octal(), entry.blob))
        .collect()
}

fn from_text(text: &str) -> Option<Listing> {
    text.lines()
        .map(|line| {
            let mut parts = line.splitn(3, ' ');
            let mode = Mode::from_git(i32::from_str_radix(parts.next()?, 8).ok()?)?;
            let blob = read::oid(parts.next()?).ok()?;
            Some((parts.next()?.to_owned(), Entry { mode, blob }))
        })
        .collect::<Option<_>>()
        .map(Listing)
}
