//! Other programs must agree: `git write-tree`, `git apply`, diffy.

use std::collections::BTreeMap;
use std::process::Command;

use camino::Utf8Path;
use fs_err as fs;
use git2::Oid;
use proptest::prelude::*;

use super::fixture::{Fixture, export, header, upstream, write_snapshot};
use crate::model::patch::{self, Patch};
use crate::sources::store::Store;
use crate::tree::path;
use crate::tree::{File, Listing, Mode, Snapshot};

/// Runs git in a folder without any configuration.
fn git(folder: &Utf8Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(args)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env_remove("GIT_DIR")
        .env_remove("GIT_INDEX_FILE")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The tree id of a folder according to git.
pub(crate) fn git_tree_id(folder: &Utf8Path) -> Oid {
    git(folder, &["init", "--quiet"]);
    git(
        folder,
        &["-c", "core.autocrlf=false", "add", "--all", "--force"],
    );
    Oid::from_str(git(folder, &["write-tree"]).trim()).unwrap()
}

fn any_file() -> impl Strategy<Value = File> {
    let mode = prop_oneof![3 => Just(Mode::Regular), 1 => Just(Mode::Executable)];
    (mode, proptest::collection::vec(any::<u8>(), 0..40))
        .prop_map(|(mode, bytes)| File { mode, bytes })
}

/// Trees whose names sort differently as files and as folders.
fn any_tree() -> impl Strategy<Value = Snapshot> {
    let part = prop_oneof!["[a-c]{1,2}", "a[.+0-]", "a"];
    let name = proptest::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"));
    proptest::collection::btree_map(name, any_file(), 1..12).prop_map(
        |files: BTreeMap<String, File>| {
            let mut kept = BTreeMap::new();
            for (name, file) in files {
                let names = kept.keys().map(String::as_str).chain([name.as_str()]);
                if path::check_together(names, "test").is_ok() {
                    kept.insert(name, file);
                }
            }
            Snapshot(kept)
        },
    )
}

/// A text in which the same line occurs often, so that a hunk would fit in several places.
fn any_text() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec("[ab]{0,1}", 0..60)
}

fn joined(lines: &[String], ends: bool) -> Vec<u8> {
    let mut text = lines
        .iter()
        .map(|line| format!("{line}\n"))
        .collect::<String>();
    if !ends {
        text.pop();
    }
    text.into_bytes()
}

fn one_file(bytes: Vec<u8>) -> Snapshot {
    Snapshot(
        [(
            "dir/f.txt".to_owned(),
            File {
                mode: Mode::Regular,
                bytes,
            },
        )]
        .into(),
    )
}

/// Two versions of a text; the second one is the first with a few edits.
fn any_edit() -> impl Strategy<Value = (Snapshot, Snapshot)> {
    let edits = proptest::collection::vec(
        (any::<prop::sample::Index>(), "[abc]{0,2}", any::<bool>()),
        1..6,
    );
    (any_text(), edits, any::<bool>(), any::<bool>())
        .prop_map(|(lines, edits, ends_before, ends_after)| {
            let mut changed = lines.clone();
            for (at, line, insert) in edits {
                if insert || changed.is_empty() {
                    changed.insert(at.index(changed.len() + 1), line);
                } else {
                    let at = at.index(changed.len());
                    changed[at] = line;
                }
            }
            (
                one_file(joined(&lines, ends_before)),
                one_file(joined(&changed, ends_after)),
            )
        })
        .prop_filter("something changes", |(before, after)| before != after)
}

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let workspace = crate::Workspace::at(Utf8Path::from_path(folder.path()).unwrap());
    let store = Store::open(&workspace).unwrap();
    (folder, store)
}

fn insert(store: &Store, tree: &Snapshot) -> Oid {
    store.insert(tree, &tree.listing().unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn tree_ids_are_gits(tree in any_tree()) {
        let folder = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(folder.path()).unwrap();
        write_snapshot(folder, &tree);
        let expected = Listing::of_dir(folder).unwrap();
        prop_assert_eq!(&expected, &tree.listing().unwrap());
        prop_assert_eq!(expected.tree_id().unwrap(), git_tree_id(folder));
    }

    #[test]
    fn export_of_import_is_the_patch((before, after) in any_edit()) {
        let bytes = export("p", &header("none"), &before, &after);
        let patch = Patch::parse("p", &bytes).unwrap();
        let (_folder, store) = store();
        let base = insert(&store, &before);
        let patched = patch.apply(store.repo(), base).unwrap();
        prop_assert_eq!(patched, after.listing().unwrap().tree_id().unwrap());
        let again = patch::export(store.repo(), "p", &patch.header, base, patched, &[]).unwrap();
        prop_assert_eq!(String::from_utf8(again).unwrap(), String::from_utf8(bytes).unwrap());
    }

    #[test]
    fn git_apply_and_diffy_agree((before, after) in any_edit()) {
        let bytes = export("p", &header("none"), &before, &after);
        let folder = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(folder.path()).unwrap();
        write_snapshot(folder, &before);
        git(folder, &["init", "--quiet"]);
        fs::write(folder.join("p.patch"), &bytes).unwrap();
        git(folder, &["apply", "--whitespace=nowarn", "p.patch"]);
        prop_assert_eq!(&fs::read(folder.join("dir/f.txt")).unwrap(), &after.0["dir/f.txt"].bytes);

        let diff = diffy::Patch::from_bytes(&bytes[bytes.windows(4).position(|w| w == b"--- ").unwrap()..]).unwrap();
        prop_assert_eq!(&diffy::apply_bytes(&before.0["dir/f.txt"].bytes, &diff).unwrap(), &after.0["dir/f.txt"].bytes);
    }

    #[test]
    fn a_shifted_file_is_never_patched((before, after) in any_edit(), extra in "[ab]") {
        // `git apply` and diffy would follow the offset; the engine must not.
        let bytes = export("p", &header("none"), &before, &after);
        let patch = Patch::parse("p", &bytes).unwrap();
        let mut shifted = before.clone();
        let file = shifted.0.get_mut("dir/f.txt").unwrap();
        file.bytes = [format!("{extra}\n").as_bytes(), &file.bytes].concat();
        let (_folder, store) = store();
        prop_assert!(patch.apply(store.repo(), insert(&store, &shifted)).is_err());
    }
}

#[test]
fn links_and_modes_count_as_in_git() {
    let folder = tempfile::tempdir().unwrap();
    let folder = Utf8Path::from_path(folder.path()).unwrap();
    write_snapshot(folder, &upstream());
    assert_eq!(
        upstream().listing().unwrap().tree_id().unwrap(),
        git_tree_id(folder)
    );
}

#[test]
fn the_series_comes_to_what_git_apply_comes_to() {
    let fixture = Fixture::new();
    let upstream = fixture.upstream();
    git(&upstream, &["init", "--quiet"]);
    for name in ["one", "two"] {
        git(&upstream, &["apply", fixture.patch_file(name).as_str()]);
    }
    let added = fixture
        .workspace
        .patches()
        .join("files")
        .join(super::fixture::ADDED);
    fs::copy(added, upstream.join(super::fixture::ADDED)).unwrap();
    assert_eq!(git_tree_id(&upstream), fixture.lock().final_tree);
}
