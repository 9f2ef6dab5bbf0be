//! The pinned tree without the overlay, written out of the engine's store for a reference build.

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use overlay::store::Store;
use overlay::tree::{Listing, Mode};
use overlay::{Oid, Workspace};

use super::prefix::builds_dir;

/// The folder with the files of `tree`; written on first use, verified on each.
pub(super) fn tree(workspace: &Workspace, tree: Oid) -> Result<Utf8PathBuf> {
    let dir = builds_dir(workspace.root())
        .join("pristine")
        .join(tree.to_string());
    if !dir.exists() {
        write(workspace, tree, &dir)?;
    }
    let found = Listing::of_dir(&dir)?.tree_id()?;
    if found != tree {
        bail!("{dir} holds tree {found}: it was edited; remove the folder and build again");
    }
    Ok(dir)
}

fn write(workspace: &Workspace, tree: Oid, dir: &Utf8Path) -> Result<()> {
    let store = Store::open_existing(workspace)
        .with_context(|| format!("tree {tree} is not here; `cargo xtask fetch` brings it"))?;
    let listing = Listing::of_tree(store.repo(), tree)
        .with_context(|| format!("tree {tree} is not here; `cargo xtask fetch` brings it"))?;
    // Written beside and renamed, so that a killed run leaves nothing that looks whole.
    let new = dir.with_extension("new");
    if new.exists() {
        fs_err::remove_dir_all(&new)?;
    }
    for (path, entry) in &listing.0 {
        let path = new.join(path);
        if let Some(parent) = path.parent() {
            fs_err::create_dir_all(parent)?;
        }
        let blob = store.repo().find_blob(entry.blob)?;
        write_file(&path, entry.mode, blob.content())?;
    }
    fs_err::rename(&new, dir)?;
    Ok(())
}

fn write_file(path: &Utf8Path, mode: Mode, content: &[u8]) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;

    if mode == Mode::Link {
        let target = std::ffi::OsStr::from_bytes(content);
        return Ok(fs_err::os::unix::fs::symlink(target, path)?);
    }
    fs_err::write(path, content)?;
    if mode == Mode::Executable {
        fs_err::set_permissions(path, PermissionsExt::from_mode(0o755))?;
    }
    Ok(())
}
