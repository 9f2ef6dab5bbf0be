//! Files that users name on a command line: written completely or not at all.

use std::fs::{self, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// The prefix of temporary files.
const PREFIX: &str = ".mlx-overlay-write-";

/// The number of attempts if others clear a new file before it is locked.
const TRIES: usize = 100;

/// Writes a file. A regular file is replaced, and a new one created, in one step: readers never see
/// a part of it, and after a failure the old file is unchanged. Anything else (`/dev/null`, a fifo,
/// a link, a file with two names) is written in place. So is a file that cannot be replaced because
/// its folder is not writable or it is a mount point.
///
/// # Errors
///
/// If the file cannot be written; the error names it.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    try_write(path, content.as_ref()).map_err(|error| named(path, &error))
}

fn try_write(path: &Path, content: &[u8]) -> io::Result<()> {
    if !is_replaceable(path) {
        return write_into(path, content);
    }
    let old = open_old(path)?;
    clear(&folder(path));
    let mut file = match beside(path) {
        Ok(file) => file,
        Err(error) if old.is_some() && is_in_the_way(&error) => return write_into(path, content),
        Err(error) => return Err(error),
    };
    // Bypasses the wrapper, whose errors name the temporary file.
    file.as_file_mut().write_all(content)?;
    if let Some(old) = &old {
        file.as_file().set_permissions(old.permissions())?;
    }
    // A full disk may be reported only here, and the rename must not come before the content.
    file.as_file().sync_all()?;
    match file.persist(path) {
        Ok(_) => Ok(()),
        Err(failed) if old.is_some() && is_in_the_way(&failed.error) => write_into(path, content),
        Err(failed) => Err(failed.error),
    }
}

fn write_into(path: &Path, content: &[u8]) -> io::Result<()> {
    fs::File::create(path)?.write_all(content)
}

/// Fails if [`write()`] would fail, before there is anything to write. Leaves the folder as it was.
///
/// # Errors
///
/// Those of [`write()`].
pub fn check_writable(path: &Path) -> io::Result<()> {
    try_writing(path).map_err(|error| named(path, &error))
}

fn try_writing(path: &Path) -> io::Result<()> {
    if is_replaceable(path) {
        let old = open_old(path)?;
        return match beside(path) {
            Err(error) if old.is_some() && is_in_the_way(&error) => Ok(()),
            tried => tried.map(drop),
        };
    }
    match fs::metadata(path) {
        // Opening it would wait for its reader.
        Ok(found) if found.file_type().is_fifo() => Ok(()),
        Ok(_) => fs::OpenOptions::new().write(true).open(path).map(drop),
        // A link to a file that does not exist yet: writing creates it.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            try_writing(&folder(path).join(fs::read_link(path)?))
        }
        Err(error) => Err(error),
    }
}

/// Whether renaming a file over it loses nothing but the old content.
fn is_replaceable(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(found) => found.is_file() && found.nlink() == 1,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// The existing file, if there is one. A read-only file is not replaced, even if its folder would allow that.
fn open_old(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match fs::OpenOptions::new().write(true).open(path) {
        Ok(file) => file.metadata().map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the folder does not allow new files, or a mount does not allow the rename.
fn is_in_the_way(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::ResourceBusy
            | ErrorKind::CrossesDevices
    )
}

/// A file in the same folder, to be renamed.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = folder(path);
    if !folder.is_dir() {
        let text = format!("the folder {} does not exist", folder.display());
        return Err(io::Error::new(ErrorKind::NotFound, text));
    }
    let mut file = new_in(&folder)?;
    // On a file system that gives inconsistent results, use the last file.
    for _ in 0..TRIES {
        if is_held(&file) {
            break;
        }
        file = new_in(&folder)?;
    }
    Ok(file)
}

fn new_in(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(PREFIX)
        // Others may read it: the umask decides, as for any new file.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        // The error's text names the temporary file, which means nothing to users.
        .map_err(|error| io::Error::from(error.kind()))
}

/// Locks a new file so that no other run clears it; returns whether it still exists. On a file
/// system without locks, files are never cleared.
fn is_held(file: &NamedTempFile) -> bool {
    if let Err(TryLockError::WouldBlock) = file.as_file().try_lock() {
        return false;
    }
    let id = |found: fs::Metadata| (found.dev(), found.ino());
    let there = fs::symlink_metadata(file.path()).map(id).ok();
    there.is_some() && there == file.as_file().metadata().map(id).ok()
}

/// Removes the unlocked temporary files that killed runs left in a folder.
fn clear(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if !ours || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        // Locked until it is removed: a run that has just created it notices, and creates another.
        let free = fs::File::open(entry.path()).ok();
        let free = free.filter(|file| file.try_lock().is_ok());
        if free.is_some() {
            // A file that cannot be removed belongs to someone else.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    let reason = match error.kind() {
        ErrorKind::IsADirectory => "it is a folder".to_owned(),
        _ => error.to_string(),
    };
    let text = format!("cannot write {}: {reason}", path.display());
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    fn names(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn what_a_killed_run_left_is_cleared_and_what_is_held_stays() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(format!("{PREFIX}left"));
        let held = folder.path().join(format!("{PREFIX}held"));
        fs::write(&left, "half").unwrap();
        let lock = fs::File::create(&held).unwrap();
        lock.lock().unwrap();
        let report = folder.path().join("report");
        check_writable(&report).unwrap();
        assert!(left.exists(), "a check clears nothing");
        write(&report, "whole").unwrap();
        assert!(!left.exists() && held.exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn writers_do_not_clear_what_others_have_just_made() {
        let folder = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        clear(folder.path());
                    }
                });
            }
            let made = (0..3000).map(|_| beside(&folder.path().join("report")));
            let lost = made.filter(|file| !file.as_ref().is_ok_and(|file| file.path().exists()));
            let lost = lost.count();
            stop.store(true, Ordering::Relaxed);
            assert_eq!(lost, 0);
        });
        assert_eq!(names(folder.path()), 0);
    }

    #[test]
    fn a_file_is_replaced_in_one_step_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.json");
        write(&file, "old").unwrap();
        let mut before = fs::File::open(&file).unwrap();
        write(&file, "new").unwrap();
        assert_eq!(read(&file), "new");
        // A reader of the old file can read it to its end.
        assert_eq!(io::read_to_string(&mut before).unwrap(), "old");
        assert_eq!(names(folder.path()), 1);
        let error = write(folder.path(), "text").unwrap_err().to_string();
        let path = folder.path().display().to_string();
        assert!(
            error.contains("cannot write") && error.contains(&path),
            "{error}"
        );
        let lost = folder.path().join("none/report.json");
        let error = write(&lost, "").unwrap_err().to_string();
        let expected = format!(
            "cannot write {}: the folder {path}/none does not exist",
            lost.display()
        );
        assert_eq!(error, expected);
    }

    #[test]
    fn a_link_stays_a_link_and_its_target_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let [target, link] = ["target", "link"].map(|name| folder.path().join(name));
        symlink("target", &link).unwrap();
        // It creates the target, then replaces its content.
        for text in ["a longer text", "text"] {
            check_writable(&link).unwrap();
            write(&link, text).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(read(&target), text);
        }
        assert_eq!(names(folder.path()), 2);
    }

    #[test]
    fn a_device_stays_a_device() {
        // A link to /dev/null, so that a bug does not destroy the machine's own.
        let null = Path::new("/dev/null");
        assert!(!is_replaceable(null));
        check_writable(null).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("null");
        symlink(null, &link).unwrap();
        write(&link, "text").unwrap();
        assert!(fs::metadata(&link).unwrap().file_type().is_char_device());
    }

    #[test]
    fn a_fifo_is_written_into_and_checked_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        let (send, receive) = mpsc::channel();
        let [reader, writer] = [fifo.clone(), fifo.clone()];
        // Threads that wait forever must not keep the test from failing.
        thread::spawn(move || {
            check_writable(&writer).unwrap();
            thread::spawn(move || send.send(read(&reader)));
            write(&writer, "text").unwrap();
        });
        let said = receive.recv_timeout(Duration::from_secs(10));
        assert_eq!(said.as_deref(), Ok("text"));
        let kind = fs::symlink_metadata(&fifo).unwrap().file_type();
        assert!(kind.is_fifo());
    }

    #[test]
    fn a_file_of_two_names_keeps_both() {
        let folder = tempfile::tempdir().unwrap();
        let [file, other] = ["file", "other"].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        fs::hard_link(&file, &other).unwrap();
        check_writable(&file).unwrap();
        write(&file, "new").unwrap();
        assert_eq!(read(&other), "new");
    }

    #[test]
    fn a_file_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        write(&file, "new").unwrap();
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// The device that is always full.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_device_is_an_error() {
        let error = write(Path::new("/dev/full"), "text").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        assert!(
            error.to_string().starts_with("cannot write /dev/full: "),
            "{error}"
        );
    }

    #[test]
    fn a_closed_pipe_is_an_error() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        let error = write(Path::new(&path), "text").unwrap_err();
        assert!(error.to_string().contains(&path), "{error}");
    }

    #[test]
    fn a_check_leaves_files_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("routes.toml");
        check_writable(&file).unwrap();
        assert_eq!(names(folder.path()), 0);
        fs::write(&file, "kept").unwrap();
        check_writable(&file).unwrap();
        assert_eq!(read(&file), "kept");
        for (link, target) in [("to-file", "routes.toml"), ("to-nothing", "new")] {
            let link = folder.path().join(link);
            symlink(target, &link).unwrap();
            check_writable(&link).unwrap();
        }
        assert_eq!(read(&file), "kept");
        assert_eq!(names(folder.path()), 3);

        for (link, target) in [("to-folder", "."), ("astray", "none/new"), ("loop", "loop")] {
            let link = folder.path().join(link);
            symlink(target, &link).unwrap();
            assert!(check_writable(&link).is_err(), "{}", link.display());
        }
        assert!(check_writable(folder.path()).is_err());
        assert!(check_writable(&folder.path().join("none/routes.toml")).is_err());
    }

    /// The permissions are those of a file made without a temporary one: its readers may be other
    /// users.
    #[test]
    fn files_have_the_permissions_of_new_ones() {
        let folder = tempfile::tempdir().unwrap();
        let [ours, plain] = ["ours", "plain"].map(|name| folder.path().join(name));
        write(&ours, "text").unwrap();
        fs::write(&plain, "text").unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&plain));
    }
}
