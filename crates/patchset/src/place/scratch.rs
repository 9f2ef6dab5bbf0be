//! Files and folders for unfinished work. They have a recognizable name, are locked while a run uses them, and are
//! removed with the run. What a killed run left is removed by the next run in the same folder.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;

use crate::error::{Error, Result};

/// A folder that is removed when it is dropped.
#[derive(Debug)]
pub struct Scratch {
    folder: Utf8PathBuf,
    _held: Option<File>,
}

impl Scratch {
    /// Makes a folder in `folder` whose name starts with `prefix`, and removes those that killed runs left there.
    ///
    /// # Errors
    /// The folder is not writable.
    pub fn new(folder: &Utf8Path, prefix: &str) -> Result<Self> {
        sweep(folder, |name| name.starts_with(prefix));
        loop {
            let made = tempfile::Builder::new().prefix(prefix).tempdir_in(folder)?;
            let folder = Utf8PathBuf::from_path_buf(made.keep()).map_err(|path| {
                Error::source(path.display().to_string(), "the path is not UTF-8")
            })?;
            // Another run may have swept it between the two calls.
            match hold(&folder) {
                Ok(Held::Yes(held)) => {
                    return Ok(Self {
                        folder,
                        _held: held,
                    });
                }
                Ok(Held::Gone) => {}
                Err(error) => {
                    let _ = fs::remove_dir(&folder);
                    return Err(error.into());
                }
            }
        }
    }

    pub fn path(&self) -> &Utf8Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If it cannot be removed now, a later run removes it.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

enum Held {
    /// Locked, with the lock if this file system supports locks.
    Yes(Option<File>),
    /// Someone removed it.
    Gone,
}

fn hold(path: &Utf8Path) -> io::Result<Held> {
    let file = match fs::File::open(path) {
        Ok(file) => file.into_file(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Held::Gone),
        Err(error) => return Err(error),
    };
    if file.lock().is_err() {
        return Ok(Held::Yes(None));
    }
    Ok(if is_at(&file, path) {
        Held::Yes(Some(file))
    } else {
        Held::Gone
    })
}

fn is_at(file: &File, path: &Utf8Path) -> bool {
    let (Ok(one), Ok(other)) = (file.metadata(), fs::symlink_metadata(path)) else {
        return false;
    };
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Locks a file that was made for this run, so that no sweep removes it.
pub(crate) fn claim(file: &fs::File) {
    // Without locks nothing is swept.
    let _ = file.file().try_lock();
}

/// Removes files left in a folder by killed runs: files with one of our names, not locked, and
/// owned by this user.
pub(crate) fn sweep(folder: &Utf8Path, ours: impl Fn(&str) -> bool) {
    let user = rustix::process::geteuid().as_raw();
    let Ok(entries) = folder.read_dir_utf8() else {
        return;
    };
    for entry in entries.flatten().filter(|entry| ours(entry.file_name())) {
        let path = entry.path();
        let Ok(found) = fs::symlink_metadata(path) else {
            continue;
        };
        if found.uid() != user || !(found.is_dir() || found.is_file()) {
            continue;
        }
        let Ok(file) = File::open(path) else { continue };
        match file.try_lock() {
            Ok(()) if is_at(&file, path) => {
                // The next run tries again to remove what is left.
                let _ = if found.is_dir() {
                    fs::remove_dir_all(path)
                } else {
                    fs::remove_file(path)
                };
            }
            Ok(()) | Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn what_nobody_holds_goes_and_the_rest_stays() {
        let all = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(all.path()).unwrap();
        let live = Scratch::new(folder, "tmp-").unwrap();
        fs::write(live.path().join("work"), "").unwrap();
        for name in ["tmp-left/deep/er", "tmp-other", "notes"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        fs::write(folder.join("tmp-file"), "").unwrap();
        std::os::unix::fs::symlink("notes", folder.join("tmp-link")).unwrap();
        let second = Scratch::new(folder, "tmp-").unwrap();
        let mut left: Vec<_> = folder
            .read_dir_utf8()
            .unwrap()
            .map(|entry| entry.unwrap().into_path())
            .collect();
        let mut expected = vec![
            folder.join("notes"),
            folder.join("tmp-link"),
            live.path().to_owned(),
            second.path().to_owned(),
        ];
        left.sort();
        expected.sort();
        assert_eq!(left, expected);
        assert!(live.path().join("work").exists());
        drop((live, second));
        assert_eq!(folder.read_dir_utf8().unwrap().count(), 2);
    }

    /// If it counted as missing, it would be made again forever.
    #[test]
    fn a_folder_that_cannot_be_opened_is_not_gone() {
        let all = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(all.path()).unwrap();
        assert!(matches!(hold(&folder.join("none")), Ok(Held::Gone)));
        let link = folder.join("link");
        std::os::unix::fs::symlink("link", &link).unwrap();
        assert!(hold(&link).is_err_and(|error| error.to_string().contains("link")));
    }

    #[test]
    fn runs_at_the_same_time_do_not_sweep_each_other() {
        const RUNS: usize = 8;
        let all = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(all.path()).unwrap();
        let start = Barrier::new(RUNS);
        std::thread::scope(|scope| {
            for _ in 0..RUNS {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..50 {
                        let scratch = Scratch::new(folder, "tmp-").unwrap();
                        fs::write(scratch.path().join("work"), "").unwrap();
                        sweep(folder, |_| true);
                        assert!(scratch.path().join("work").exists());
                    }
                });
            }
        });
        assert_eq!(folder.read_dir_utf8().unwrap().count(), 0);
    }
}
