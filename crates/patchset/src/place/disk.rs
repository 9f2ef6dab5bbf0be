//! Every file-system call that changes `vendor/` or the lock is made here, so that tests can kill the process before
//! each of them.

use std::io::Write as _;

use camino::Utf8Path;
use fs_err as fs;

use crate::error::Result;
use crate::place::scratch;
use crate::place::step::{may_exchange, step};
use crate::tree::{File, Mode, Snapshot};

pub(crate) fn create_dir_all(path: &Utf8Path) -> Result<()> {
    step();
    Ok(fs::create_dir_all(path)?)
}

/// Writes a new file; an existing one is an error.
pub(crate) fn write_new(path: &Utf8Path, file: &File) -> Result<()> {
    if file.mode == Mode::Link {
        step();
        let target = std::str::from_utf8(&file.bytes).map_err(|_| {
            crate::Error::source(path.as_str(), "a link to a name that is not UTF-8")
        })?;
        return Ok(fs::os::unix::fs::symlink(target, path)?);
    }
    step();
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    let permissions = if file.mode == Mode::Executable {
        0o777
    } else {
        0o666
    };
    fs_err::os::unix::fs::OpenOptionsExt::mode(&mut options, permissions);
    let mut out = options.open(path)?;
    step();
    Ok(out.write_all(&file.bytes)?)
}

/// Writes the files of a tree into a folder that has none of them.
///
/// # Errors
/// A file exists already or cannot be written.
pub fn write_tree(folder: &Utf8Path, files: &Snapshot) -> Result<()> {
    for (path, file) in &files.0 {
        let path = folder.join(path);
        path.parent().map_or(Ok(()), create_dir_all)?;
        write_new(&path, file)?;
    }
    Ok(())
}

pub(crate) fn hard_link(from: &Utf8Path, to: &Utf8Path) -> Result<()> {
    step();
    Ok(fs::hard_link(from, to)?)
}

/// Copies content, permissions and time; of a link, the link itself, wherever it points.
pub(crate) fn copy_with_time(from: &Utf8Path, to: &Utf8Path) -> Result<()> {
    step();
    if fs::symlink_metadata(from)?.is_symlink() {
        return Ok(fs::os::unix::fs::symlink(fs::read_link(from)?, to)?);
    }
    fs::copy(from, to)?;
    let modified = fs::metadata(from)?.modified()?;
    step();
    Ok(fs::OpenOptions::new()
        .write(true)
        .open(to)?
        .set_modified(modified)?)
}

pub(crate) fn rename(from: &Utf8Path, to: &Utf8Path) -> Result<()> {
    step();
    Ok(fs::rename(from, to)?)
}

pub(crate) fn remove_file(path: &Utf8Path) -> Result<()> {
    step();
    Ok(fs::remove_file(path)?)
}

/// Removes a folder with everything in it; a missing folder is not an error.
pub(crate) fn remove_tree(path: &Utf8Path) -> Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.is_dir() {
        return remove_file(path);
    }
    for entry in path.read_dir_utf8()? {
        remove_tree(entry?.path())?;
    }
    step();
    Ok(fs::remove_dir(path)?)
}

/// Replaces a file's content in one step: writes a new file next to it and renames that over it. Removes what a killed
/// run left there.
pub(crate) fn replace(path: &Utf8Path, bytes: &[u8]) -> Result<()> {
    let prefix = format!(".{}.", path.file_name().unwrap_or_default());
    let of_a_run = |name: &str| {
        let number = name.strip_prefix(&prefix);
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if let Some(folder) = path.parent() {
        scratch::sweep(folder, of_a_run);
    }
    let beside = path.with_file_name(format!("{prefix}{}", std::process::id()));
    step();
    let write = || {
        let mut file = fs::File::create(&beside)?;
        scratch::claim(&file);
        Ok(file.write_all(bytes)?)
    };
    // Another run may have swept it before it was locked.
    let written = write()
        .and_then(|()| rename(&beside, path))
        .or_else(|_: crate::Error| write().and_then(|()| rename(&beside, path)));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Exchanges two files or folders in one step. `Ok(false)` if the file system does not support that.
pub(crate) fn exchange(one: &Utf8Path, other: &Utf8Path) -> Result<bool> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;

    if !may_exchange() {
        return Ok(false);
    }
    step();
    match renameat_with(
        CWD,
        one.as_std_path(),
        CWD,
        other.as_std_path(),
        RenameFlags::EXCHANGE,
    ) {
        Ok(()) => Ok(true),
        Err(Errno::NOSYS | Errno::INVAL | Errno::NOTSUP) => Ok(false),
        Err(error) => {
            let error = std::io::Error::from(error);
            Err(std::io::Error::new(
                error.kind(),
                format!("failed to exchange {one} and {other}: {error}"),
            )
            .into())
        }
    }
}
