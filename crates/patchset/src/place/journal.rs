//! Changes several files of the project in one step: the pin, the lock, the patches and a report change together or not
//! at all.
//!
//! The new contents are first written next to the tree in `vendor/`. One rename makes them a journal; from then on the
//! change is decided, and this run or the next one carries it out. Before that rename the project is untouched.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::place::disk;
use crate::place::workspace::Workspace;
use crate::read;
use crate::tree::{File, Mode, path};

/// The files to change, by path in the project; `None` removes a file.
pub(crate) type Changes = BTreeMap<String, Option<File>>;

const DRAFT: &str = ".journal.next";
const DECIDED: &str = ".journal";
const LIST: &str = "list.toml";

/// The journal's content: a file's path in the project, and the name of its content in the journal.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    write: BTreeMap<String, String>,
    #[serde(default)]
    remove: Vec<String>,
}

/// Changes all files or none.
pub(crate) fn commit(workspace: &Workspace, changes: &Changes) -> Result<()> {
    recover(workspace)?;
    let vendor = workspace.vendor();
    let draft = vendor.join(DRAFT);
    disk::remove_tree(&draft)?;
    disk::create_dir_all(&draft)?;
    let mut list = List {
        write: BTreeMap::new(),
        remove: Vec::new(),
    };
    for (number, (path, file)) in changes.iter().enumerate() {
        match file {
            Some(file) => {
                let name = format!("{number}");
                disk::write_new(&draft.join(&name), file)?;
                list.write.insert(path.clone(), name);
            }
            None => list.remove.push(path.clone()),
        }
    }
    let text = toml::to_string(&list).map_err(|error| Error::source(DRAFT, error))?;
    disk::write_new(
        &draft.join(LIST),
        &File {
            mode: Mode::Regular,
            bytes: text.into_bytes(),
        },
    )?;
    disk::rename(&draft, &vendor.join(DECIDED))?;
    carry_out(workspace)
}

/// Whether a change was decided but not finished.
pub(crate) fn waits(workspace: &Workspace) -> bool {
    workspace.vendor().join(DECIDED).is_dir()
}

/// Finishes a change that was decided, if there is one. Needs the lock of `vendor/`.
pub(crate) fn recover(workspace: &Workspace) -> Result<()> {
    if waits(workspace) {
        carry_out(workspace)
    } else {
        Ok(())
    }
}

/// Each step can be repeated: a content that is no longer in the journal is in its place.
fn carry_out(workspace: &Workspace) -> Result<()> {
    let journal = workspace.vendor().join(DECIDED);
    let list: List = read::toml(&journal.join(LIST))?;
    for (path, name) in &list.write {
        let (from, to) = (journal.join(name), in_project(workspace, path)?);
        if fs::symlink_metadata(&from).is_ok() {
            to.parent().map_or(Ok(()), disk::create_dir_all)?;
            put(&from, &to)?;
        }
    }
    for path in &list.remove {
        let file = in_project(workspace, path)?;
        if fs::symlink_metadata(&file).is_ok() {
            disk::remove_file(&file)?;
        }
        remove_empty_parents(workspace, &file);
    }
    // The list is removed last, with its folder: without it the remains would look like an undecided change.
    let done = workspace.vendor().join(DRAFT);
    disk::remove_tree(&done)?;
    disk::rename(&journal, &done)?;
    disk::remove_tree(&done)
}

/// Moves a content to its place. If `vendor/` is on another file system, it is first copied next to that place.
fn put(from: &Utf8Path, to: &Utf8Path) -> Result<()> {
    if disk::rename(from, to).is_ok() {
        return Ok(());
    }
    let bytes = fs::read(from)?;
    disk::replace(to, &bytes)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    disk::remove_file(from)
}

fn in_project(workspace: &Workspace, path: &str) -> Result<Utf8PathBuf> {
    path::check(path, DECIDED)?;
    Ok(workspace.root().join(path))
}

/// Removes empty folders of added files; git would not keep them either.
fn remove_empty_parents(workspace: &Workspace, file: &Utf8Path) {
    let top = workspace.patches();
    for folder in file
        .ancestors()
        .skip(1)
        .take_while(|folder| folder.starts_with(&top) && **folder != top)
    {
        if fs::remove_dir(folder).is_err() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Option<File> {
        Some(File {
            mode: Mode::Regular,
            bytes: text.into(),
        })
    }

    fn project() -> (tempfile::TempDir, Workspace) {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::at(Utf8Path::from_path(folder.path()).unwrap());
        fs::create_dir_all(workspace.patches().join("files/a/b")).unwrap();
        for (path, text) in [
            ("mlx.toml", "old"),
            ("patches/x.patch", "old"),
            ("patches/files/a/b/c", "old"),
        ] {
            fs::write(workspace.root().join(path), text).unwrap();
        }
        (folder, workspace)
    }

    fn changes() -> Changes {
        let mut changes = Changes::new();
        changes.insert("mlx.toml".into(), file("new"));
        changes.insert("docs/pin-moves/r.md".into(), file("new"));
        changes.insert("patches/x.patch".into(), file("new"));
        changes.insert("patches/files/a/b/c".into(), None);
        changes
    }

    fn contents(workspace: &Workspace) -> Vec<Option<String>> {
        let paths = [
            "mlx.toml",
            "docs/pin-moves/r.md",
            "patches/x.patch",
            "patches/files/a/b/c",
        ];
        paths
            .iter()
            .map(|path| fs::read_to_string(workspace.root().join(path)).ok())
            .collect()
    }

    #[test]
    fn all_files_change_together() {
        let (_folder, workspace) = project();
        commit(&workspace, &changes()).unwrap();
        let new = || Some("new".to_owned());
        assert_eq!(contents(&workspace), [new(), new(), new(), None]);
        assert!(
            !workspace.patches().join("files").exists(),
            "an empty folder was left"
        );
        assert!(
            workspace.vendor().read_dir_utf8().unwrap().next().is_none(),
            "the journal was left"
        );
    }

    /// Stops a commit at every file-system call in turn (this test runs again as a child process that kills itself) and
    /// checks that the next run finds everything old or everything new.
    #[test]
    fn a_kill_at_any_step_leaves_old_or_new() {
        const CHILD: &str = "OVERLAY_TEST_JOURNAL";
        if let Ok(root) = std::env::var(CHILD) {
            commit(&Workspace::at(Utf8PathBuf::from(root)), &changes()).unwrap();
            return;
        }
        let old = || Some("old".to_owned());
        let new = || Some("new".to_owned());
        let (mut undone, mut completed) = (0, 0);
        for step in 1.. {
            let (_folder, workspace) = project();
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "place::journal::tests::a_kill_at_any_step_leaves_old_or_new",
                ])
                .env(CHILD, workspace.root())
                .env(crate::place::step::VARIABLE, step.to_string())
                .stdout(std::process::Stdio::null())
                .status()
                .unwrap();
            let decided = workspace.vendor().join(DECIDED).is_dir();
            if !decided && !status.success() {
                let before = contents(&workspace);
                assert!(
                    before == [old(), None, old(), old()] || before == [new(), new(), new(), None],
                    "step {step}"
                );
            }
            recover(&workspace).unwrap();
            let after = contents(&workspace);
            if after == [new(), new(), new(), None] {
                completed += 1;
            } else {
                assert_eq!(after, [old(), None, old(), old()], "step {step}");
                undone += 1;
            }
            if status.success() {
                break;
            }
        }
        assert!(
            undone > 5 && completed > 5,
            "{undone} undone, {completed} completed: the kills missed"
        );
    }
}
