//! Writes files completely or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Writes a new file next to `path` and renames it to `path`, with the permissions of the old file.
pub(super) fn put(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let former = match fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return replace(path, None, write),
        Err(error) => return Err(error),
    };
    if former.is_file() && former.permissions().readonly() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // A file with several hard links keeps them all.
    if former.is_file() && former.nlink() == 1 {
        replace(path, Some(former.permissions()), write)
    } else {
        write(&mut File::create(path)?)
    }
}

fn replace(
    path: &Path,
    permissions: Option<Permissions>,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let (beside, mut file) = Beside::new(path)?;
    write(&mut file)?;
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    // A full disk may only be reported here, and the content must be on the disk before the rename.
    file.sync_all()?;
    fs::rename(&beside.0, path)
}

/// A new file in the same folder, removed unless it is renamed.
struct Beside(PathBuf);

impl Beside {
    fn new(path: &Path) -> io::Result<(Self, File)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let suffix = format!(".{}-{number}.tmp", std::process::id());
            let mut beside = OsString::from(".");
            beside.push(name);
            beside.push(suffix);
            let beside = path.with_file_name(beside);
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&beside)
            {
                Ok(file) => return Ok((Self(beside), file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // After a rename it no longer exists.
        let _ = fs::remove_file(&self.0);
    }
}
