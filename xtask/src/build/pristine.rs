//! The pinned tree without the overlay, written from the engine's store for a reference build.

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use mlx_prefix::BUILDS;
use patchset::store::Store;
use patchset::tree::{Listing, Snapshot};
use patchset::{Oid, Workspace};

use super::prefix::lock;

/// The folder with the files of `tree`: written on first use, verified on every use.
pub(crate) fn tree(workspace: &Workspace, tree: Oid) -> Result<Utf8PathBuf> {
    let all = workspace.root().join(BUILDS).join("pristine");
    fs_err::create_dir_all(&all)?;
    let dir = all.join(tree.to_string());
    // Locked while it is checked: another run may be writing it.
    let _lock = lock(&all)?;
    if !dir.exists() {
        write(workspace, tree, &dir)?;
    }
    let found = Listing::of_dir(&dir)?.tree_id()?;
    if found != tree {
        bail!("{dir} has tree {found}: it was edited; remove the folder and build again");
    }
    Ok(dir)
}

fn write(workspace: &Workspace, tree: Oid, dir: &Utf8Path) -> Result<()> {
    let store = Store::open_existing(workspace).with_context(|| {
        format!("tree {tree} is not in the local store; run `cargo xtask fetch`")
    })?;
    let files = Snapshot::of_tree(store.repo(), tree).with_context(|| {
        format!("tree {tree} is not in the local store; run `cargo xtask fetch`")
    })?;
    // Written next to its place and renamed, so that a killed run leaves nothing that looks complete.
    let new = dir.with_extension("new");
    if new.exists() {
        fs_err::remove_dir_all(&new)?;
    }
    patchset::place::write_tree(&new, &files)?;
    fs_err::rename(&new, dir)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use patchset::tree::{File, Mode};

    use super::*;

    /// A workspace whose store has a tree.
    fn stored(scratch: &tempfile::TempDir) -> (Workspace, Snapshot, Oid) {
        let workspace = Workspace::at(Utf8Path::from_path(scratch.path()).unwrap());
        let file = |mode, bytes: &str| File {
            mode,
            bytes: bytes.into(),
        };
        let snapshot = Snapshot(
            [
                ("mlx/a.cpp", file(Mode::Regular, "int a;")),
                ("run.sh", file(Mode::Executable, "#!/bin/sh")),
                ("link", file(Mode::Link, "mlx/a.cpp")),
            ]
            .map(|(path, file)| (path.to_owned(), file))
            .into(),
        );
        let store = Store::open(&workspace).unwrap();
        let id = store
            .insert(&snapshot, &snapshot.listing().unwrap())
            .unwrap();
        (workspace, snapshot, id)
    }

    #[test]
    fn the_tree_is_written_once_and_an_edit_is_noticed() {
        let scratch = tempfile::tempdir().unwrap();
        let (workspace, snapshot, id) = stored(&scratch);
        let dir = tree(&workspace, id).unwrap();
        assert_eq!(Snapshot::of_dir(&dir).unwrap(), snapshot);
        assert_eq!(tree(&workspace, id).unwrap(), dir);
        fs_err::write(dir.join("mlx/a.cpp"), "int b;").unwrap();
        let text = format!("{:#}", tree(&workspace, id).unwrap_err());
        assert!(text.contains("it was edited"), "{text}");
    }

    #[test]
    fn runs_at_the_same_time_all_get_the_whole_tree() {
        const RUNS: usize = 4;
        for _ in 0..8 {
            let scratch = tempfile::tempdir().unwrap();
            let (workspace, snapshot, id) = stored(&scratch);
            // The remains of a killed run do no harm.
            let left = workspace
                .root()
                .join(BUILDS)
                .join(format!("pristine/{id}.new/mlx"));
            fs_err::create_dir_all(left).unwrap();
            let start = std::sync::Barrier::new(RUNS);
            std::thread::scope(|scope| {
                for _ in 0..RUNS {
                    scope.spawn(|| {
                        start.wait();
                        let dir = tree(&workspace, id).unwrap();
                        assert_eq!(Snapshot::of_dir(&dir).unwrap(), snapshot);
                    });
                }
            });
        }
    }

    #[test]
    fn a_tree_that_was_not_fetched_names_the_command() {
        let scratch = tempfile::tempdir().unwrap();
        let workspace = Workspace::at(Utf8Path::from_path(scratch.path()).unwrap());
        let error = tree(&workspace, Oid::ZERO_SHA1).unwrap_err();
        assert!(format!("{error:#}").contains("cargo xtask fetch"));
    }
}
