//! The prefix in the making, and how it takes its place.
//!
//! CMake installs below a folder that stands for `/` (`DESTDIR`): what it writes names the place where
//! the prefix will lie, and the prefix that lies there stays whole until then.

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};
use mlx_prefix::sums;

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
        patchset::place::recover(place, &staging.aside())?;
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
            patchset::place::put(&prefix, &self.place, &self.aside())?;
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

/// Whether the prefix in its place holds the same files as the new one, with the same permissions.
///
/// Content decides, not times: an install keeps them to the second, and they tell nothing about a disk's fault.
fn same(new: &Utf8Path, place: &Utf8Path) -> Result<bool> {
    let listed = sums::read(new)?;
    if listed != sums::read(place)? || sums::check(place)?.is_some() {
        return Ok(false);
    }
    for name in listed.unwrap_or_default().keys() {
        let permissions = |prefix: &Utf8Path| -> Result<_> {
            Ok(fs_err::metadata(prefix.as_std_path().join(name))?.permissions())
        };
        if permissions(new)? != permissions(place)? {
            return Ok(false);
        }
    }
    Ok(true)
}
