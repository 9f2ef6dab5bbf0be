//! A new prefix before it replaces the old one.
//!
//! CMake installs below a staging root (`DESTDIR`), so the installed files name the final place of the prefix, and the
//! prefix there stays complete until it is replaced.

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};
use mlx_prefix::sums;

/// A prefix that is not in use yet.
pub(super) struct Staging {
    root: Utf8PathBuf,
    place: Utf8PathBuf,
}

impl Staging {
    /// Prepares a prefix for `place`, an absolute path, and removes what a killed build left.
    pub(super) fn new(place: &Utf8Path) -> Result<Self> {
        let staging = Self {
            root: place.with_extension("new"),
            place: place.to_owned(),
        };
        patchset::place::recover(place, &staging.aside())?;
        staging.remove()?;
        Ok(staging)
    }

    /// The staging root.
    pub(super) fn root(&self) -> &Utf8Path {
        &self.root
    }

    /// The folder of the new prefix.
    pub(super) fn prefix(&self) -> Utf8PathBuf {
        Utf8PathBuf::from(format!("{}{}", self.root, self.place))
    }

    /// Puts the prefix in its place in one step. If the old one is identical it stays, so that build scripts that watch
    /// file times do not run again.
    pub(super) fn put(self) -> Result<()> {
        let prefix = self.prefix();
        // A prefix that cannot be read is replaced.
        if !same(&prefix, &self.place).unwrap_or(false) {
            patchset::place::put(&prefix, &self.place, &self.aside())?;
        }
        // If the rest cannot be removed now, the next build reports why.
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

/// Whether the current prefix has the same files as the new one, with the same permissions.
///
/// Content decides, not times: an install keeps times to the second, and times do not reveal corruption.
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
