//! Lists and copies folders of files.

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use walkdir::WalkDir;

/// Copies all files below `from`, with their permissions.
pub(crate) fn copy_tree(from: &Utf8Path, to: &Utf8Path) -> Result<()> {
    for path in walk(from)? {
        let target = to.join(path.strip_prefix(from)?);
        if let Some(parent) = target.parent() {
            fs_err::create_dir_all(parent)?;
        }
        fs_err::copy(&path, &target)?;
    }
    Ok(())
}

/// Updates `to` with the files of `from` and their permissions. Identical files are left alone, different ones are
/// replaced in one step, and extra files stay: a build made them.
pub(crate) fn update_tree(from: &Utf8Path, to: &Utf8Path) -> Result<()> {
    for path in walk(from)? {
        let target = to.join(path.strip_prefix(from)?);
        let permissions = |path| fs_err::metadata(path).map(|file| file.permissions()).ok();
        if permissions(&target) == permissions(&path) && same(&path, &target)? {
            continue;
        }
        let parent = target.parent().unwrap_or(to);
        fs_err::create_dir_all(parent)?;
        let copy = tempfile::Builder::new()
            .prefix(".mlx-overlay-")
            .tempfile_in(parent)?;
        fs_err::copy(&path, copy.path())?;
        copy.persist(&target)?;
    }
    Ok(())
}

/// Whether two files have the same content.
pub(crate) fn same(one: &Utf8Path, other: &Utf8Path) -> Result<bool> {
    Ok(
        fs_err::metadata(one)?.len() == fs_err::metadata(other)?.len()
            && fs_err::read(one)? == fs_err::read(other)?,
    )
}

/// All files below `folder`, sorted by name. Anything but files and folders is an error: a link may lead out of the
/// folder.
pub(crate) fn walk(folder: &Utf8Path) -> Result<Vec<Utf8PathBuf>> {
    let mut files = Vec::new();
    for entry in WalkDir::new(folder).sort_by_file_name() {
        let entry = entry.with_context(|| format!("cannot list {folder}"))?;
        let kind = entry.file_type();
        let path = Utf8PathBuf::try_from(entry.into_path())?;
        if kind.is_file() {
            files.push(path);
        } else if !kind.is_dir() {
            bail!("{path} is neither a file nor a folder; nothing else can be copied");
        }
    }
    Ok(files)
}
