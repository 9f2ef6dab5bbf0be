//! The prefix in the making, and how it takes its place.
//!
//! CMake installs below a folder that stands for `/` (`DESTDIR`): what it writes names the place where
//! the prefix will lie, and the prefix that lies there stays whole until then.

use std::io::{BufRead, BufReader};

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};
use fs_err::File;

use crate::files::walk;

const PIECE: usize = 1 << 16;

/// A prefix that nobody uses yet.
pub(super) struct Staging {
    root: Utf8PathBuf,
    place: Utf8PathBuf,
}

impl Staging {
    /// Makes room for a prefix that belongs at `place`, an absolute path, and clears what a killed
    /// build left behind.
    pub(super) fn new(place: &Utf8Path) -> Result<Self> {
        let staging = Self {
            root: place.with_extension("new"),
            place: place.to_owned(),
        };
        overlay::place::recover(place, &staging.aside())?;
        staging.remove()?;
        Ok(staging)
    }

    /// What stands for `/`.
    pub(super) fn root(&self) -> &Utf8Path {
        &self.root
    }

    /// Where the prefix is made.
    pub(super) fn prefix(&self) -> Utf8PathBuf {
        Utf8PathBuf::from(format!("{}{}", self.root, self.place))
    }

    /// Puts the prefix in its place, in one step. One that is the same stays there: build scripts that
    /// watch its times stay quiet.
    pub(super) fn put(self) -> Result<()> {
        let prefix = self.prefix();
        // One that cannot be read is to be replaced.
        if !same(&prefix, &self.place).unwrap_or(false) {
            overlay::place::put(&prefix, &self.place, &self.aside())?;
        }
        // If the rest cannot be removed now, the next build says why.
        let _ = self.remove();
        Ok(())
    }

    fn aside(&self) -> Utf8PathBuf {
        self.place.with_extension("old")
    }

    fn remove(&self) -> Result<()> {
        if self.root.exists() {
            fs_err::remove_dir_all(&self.root)?;
        }
        Ok(())
    }
}

/// Whether both folders hold the same files.
fn same(one: &Utf8Path, other: &Utf8Path) -> Result<bool> {
    let (ours, theirs) = (walk(one)?, walk(other)?);
    if ours.len() != theirs.len() {
        return Ok(false);
    }
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let same_name = ours.strip_prefix(one)? == theirs.strip_prefix(other)?;
        if !same_name || !same_file(ours, theirs)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether both files have the same permissions and content. An install keeps times to the second:
/// they tell nothing about a disk's fault, nor about two builds within one.
fn same_file(one: &Utf8Path, other: &Utf8Path) -> Result<bool> {
    let (ours, theirs) = (fs_err::metadata(one)?, fs_err::metadata(other)?);
    Ok(ours.len() == theirs.len()
        && ours.permissions() == theirs.permissions()
        && same_content(one, other)?)
}

/// Piece by piece: the library as a whole is most of what an unchanged build would touch.
fn same_content(one: &Utf8Path, other: &Utf8Path) -> Result<bool> {
    let mut one = BufReader::with_capacity(PIECE, File::open(one)?);
    let mut other = BufReader::with_capacity(PIECE, File::open(other)?);
    loop {
        let (ours, theirs) = (one.fill_buf()?, other.fill_buf()?);
        let length = ours.len().min(theirs.len());
        if ours[..length] != theirs[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(ours.len() == theirs.len());
        }
        one.consume(length);
        other.consume(length);
    }
}
