//! Patches that are malformed, belong to something else, or would do more than allowed.

use fs_err as fs;

use super::fixture::{ADDED, Fixture, edit, export, header, upstream};
use crate::Error;
use crate::apply::{Options, apply};
use crate::model::patch::Patch;
use crate::model::series::Series;
use crate::progress::QUIET;
use crate::state::State;

/// The engine's error for a patch file.
fn fault(bytes: &[u8]) -> String {
    match Patch::parse("bad", bytes) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("accepted:\n{}", String::from_utf8_lossy(bytes)),
    }
}

fn patch_text(fixture: &Fixture, name: &str) -> String {
    fs::read_to_string(fixture.patch_file(name)).unwrap()
}

#[test]
fn empty_cut_and_crlf_patches_are_refused() {
    let fixture = Fixture::new();
    let text = patch_text(&fixture, "one");
    assert!(fault(b"").contains("patches/bad.patch: it is empty"));
    assert!(fault(text.replace('\n', "\r\n").as_bytes()).contains("CRLF"));
    let (head, diff) = text.split_at(text.find("diff --git").unwrap());
    assert!(fault(format!("{head}{}", diff.replace('\n', "\r\n")).as_bytes()).contains("CRLF"));
    assert!(fault(head.as_bytes()).contains("it changes nothing"));
    assert!(fault(diff.as_bytes()).contains("expected a header"));
}

#[test]
fn a_patch_cut_anywhere_never_applies() {
    let fixture = Fixture::new();
    let text = patch_text(&fixture, "one");
    let file = fixture.patch_file("one");
    for length in 0..text.len() {
        fs::write(&file, &text[..length]).unwrap();
        let error = fixture.apply().expect_err("a cut patch was applied");
        assert!(
            matches!(error, Error::Patch { .. } | Error::LockDiffers(_)),
            "{length}: {error}"
        );
    }
    assert_eq!(fixture.state_of_vendor(), None);
}

#[test]
fn a_patch_cut_between_its_files_does_not_come_to_the_next_ones_preimage() {
    let fixture = Fixture::new();
    let text = patch_text(&fixture, "one");
    let second = text.rfind("diff --git").unwrap();
    // By itself it is a valid patch; only the lock shows the change.
    let half = Patch::parse("one", &text.as_bytes()[..second]).unwrap();
    assert_eq!(half.edits.len(), 1);
    fs::write(fixture.patch_file("one"), &text[..second]).unwrap();
    assert!(
        matches!(fixture.apply(), Err(Error::LockDiffers(why)) if why == ["patches/one.patch has changed"])
    );
}

#[test]
fn a_hunk_at_an_offset_is_refused() {
    let fixture = Fixture::new();
    let text = patch_text(&fixture, "one");
    assert!(text.contains("@@ -1,6 +1,6 @@"), "{text}");
    for moved in ["@@ -2,6 +2,6 @@", "@@ -9,6 +9,6 @@", "@@ -100,6 +100,6 @@"] {
        let patch = Patch::parse("one", text.replace("@@ -1,6 +1,6 @@", moved).as_bytes()).unwrap();
        let error = apply_to_base(&fixture, &patch).unwrap_err().to_string();
        assert!(
            error.starts_with("patches/one.patch: a hunk does not fit at its line"),
            "{moved}: {error}"
        );
    }
}

#[test]
fn context_that_fits_another_file_is_refused_by_its_id() {
    let fixture = Fixture::new();
    let text = patch_text(&fixture, "one");
    // Equal context and lines, but made from another content of the file.
    let before = Series::load(&fixture.workspace.patches()).unwrap().patches[0].edits[0]
        .before
        .to_string();
    let patch = Patch::parse("one", text.replace(&before, &"12".repeat(20)).as_bytes()).unwrap();
    let error = apply_to_base(&fixture, &patch).unwrap_err().to_string();
    assert!(
        error.contains("expected a.txt as blob 1212") && error.contains(&before),
        "{error}"
    );
    // And a result that is not the one specified.
    let after = Series::load(&fixture.workspace.patches()).unwrap().patches[0].edits[0]
        .after
        .to_string();
    let patch = Patch::parse("one", text.replace(&after, &"34".repeat(20)).as_bytes()).unwrap();
    let error = apply_to_base(&fixture, &patch).unwrap_err().to_string();
    assert!(error.contains("a.txt should become blob 3434"), "{error}");
}

#[test]
fn an_applied_patch_is_told_from_others() {
    let fixture = Fixture::new();
    let store = crate::sources::store::Store::open(&fixture.workspace).unwrap();
    let repo = store.overlay().unwrap();
    let patch = fixture.parse("one");
    let once = patch.apply(&repo, fixture.base).unwrap();
    let error = patch.apply(&repo, once).unwrap_err().to_string();
    assert!(error.contains("the patch is applied"), "{error}");
}

#[test]
fn paths_of_a_diff_stay_in_the_tree() {
    let fixture = Fixture::new();
    let text = patch_text(&fixture, "one");
    for path in [
        "../b.txt",
        "dir/../../b.txt",
        ".git/config",
        "/b.txt",
        "C:/b.txt",
    ] {
        let hostile = text
            .replace("a/b.txt", &format!("a/{path}"))
            .replace("b/b.txt", &format!("b/{path}"));
        let error = fault(hostile.as_bytes());
        assert!(
            error.contains("unsafe path") || error.contains("malformed"),
            "{path}: {error}"
        );
    }
    let hostile = text.replace("Adds: none", "Adds: ../outside");
    assert!(fault(hostile.as_bytes()).contains("unsafe path \"../outside\""));
}

#[test]
fn a_diff_only_edits() {
    let fixture = Fixture::new();
    let text = patch_text(&fixture, "two");
    let head = &text[..text.find("diff --git").unwrap()];
    let (zero, one) = ("0".repeat(40), "1".repeat(40));
    for diff in [
        format!(
            "diff --git a/n b/n\nnew file mode 100644\nindex {zero}..{one}\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n"
        ),
        format!(
            "diff --git a/n b/n\ndeleted file mode 100644\nindex {one}..{zero}\n--- a/n\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        ),
        "diff --git a/n b/n\nold mode 100644\nnew mode 100755\n".to_owned(),
        "diff --git a/n b/m\nsimilarity index 100%\nrename from n\nrename to m\n".to_owned(),
        format!("diff --git a/n b/n\nindex {zero}..{one} 100644\nGIT binary patch\nliteral 0\n"),
        format!(
            "diff --git a/n b/n\nindex {}..{one} 100644\n--- a/n\n+++ b/n\n@@ -1 +1 @@\n-x\n+y\n",
            &zero[..7]
        ),
        format!(
            "diff --git a/n b/n\nindex {zero}..{one} 100644\n--- a/n\n+++ b/n\n@@ -1 +1 @@\n-x\n+y\ntrailing\n"
        ),
        format!(
            "diff --git a/n b/n\nindex {zero}..{one} 100644\n--- a/n\n+++ b/n\n@@ -1,2 +1 @@\n-x\n+y\n"
        ),
    ] {
        fault(format!("{head}{diff}").as_bytes());
    }
}

/// Found by fuzzing: git2 panics on a mode that it does not know.
#[test]
fn a_mode_that_git_does_not_know_is_refused() {
    let fixture = Fixture::new();
    let text = patch_text(&fixture, "one");
    assert!(text.contains(" 100644\n"));
    for mode in ["100464", "40000", "120000", "100644 ", "x", ""] {
        let error = fault(text.replace(" 100644\n", &format!(" {mode}\n")).as_bytes());
        assert!(error.contains("expected a mode"), "{mode:?}: {error}");
    }
}

impl Fixture {
    /// Applies with `update_lock`; a refusal leaves neither a tree nor another lock.
    #[track_caller]
    fn refuses_to_lock(&self) -> Error {
        let lock = fs::read(self.workspace.lock_path()).unwrap();
        let options = Options {
            update_lock: true,
            offline: true,
            ..Options::default()
        };
        let error = apply(&self.workspace, &options, QUIET).unwrap_err();
        assert_eq!(fs::read(self.workspace.lock_path()).unwrap(), lock);
        assert!(!self.workspace.tree().exists(), "{error}");
        error
    }
}

/// libgit2 takes the mode in the index line.
#[test]
fn a_patch_changes_no_modes() {
    let fixture = Fixture::new();
    let text = patch_text(&fixture, "one");
    fs::write(
        fixture.patch_file("one"),
        text.replace(" 100644\n", " 100755\n"),
    )
    .unwrap();
    let error = fixture.refuses_to_lock().to_string();
    assert!(
        error.contains("expected a.txt with mode 100755, found 100644"),
        "{error}"
    );
}

#[test]
fn patches_over_the_budget_are_not_applied() {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.workspace.manifest_path()).unwrap();
    let lines = fixture.series().changed_lines();
    let over = format!("budget-lines = {}", lines - 1);
    let manifest = text.replace("budget-lines = 60", &over);
    fs::write(fixture.workspace.manifest_path(), manifest).unwrap();
    let error = fixture.refuses_to_lock();
    assert!(
        matches!(error, Error::OverBudget { changed, most } if (changed, most) == (lines, lines - 1)),
        "{error}"
    );
    fixture.revert().unwrap();
}

#[test]
fn an_added_file_takes_no_file_away() {
    let fixture = Fixture::new();
    let files = fixture.workspace.patches().join("files");
    fs::create_dir_all(files.join("b.txt/c")).unwrap();
    fs::rename(files.join(ADDED), files.join("b.txt/c/x")).unwrap();
    fs::remove_dir(files.join("dir")).unwrap();
    let text = patch_text(&fixture, "two").replace(ADDED, "b.txt/c/x");
    fs::write(fixture.patch_file("two"), text).unwrap();
    let error = fixture.refuses_to_lock().to_string();
    assert!(
        error.contains("it adds b.txt/c/x, but b.txt is a file in tree"),
        "{error}"
    );
}

#[test]
fn a_patch_that_an_export_would_write_otherwise_is_not_applied() {
    let fixture = Fixture::new();
    let text = patch_text(&fixture, "one");
    let hunk = text.lines().find(|line| line.starts_with("@@")).unwrap();
    fs::write(
        fixture.patch_file("one"),
        text.replacen(hunk, &format!("{hunk} a heading"), 1),
    )
    .unwrap();
    let error = fixture.refuses_to_lock();
    assert!(
        matches!(&error, Error::NotCanonical(name) if name == "one"),
        "{error}"
    );
}

/// Through a link of upstream's, which stays inside by itself.
#[test]
fn an_added_link_does_not_leave_the_tree_by_way_of_another() {
    let fixture = Fixture::new();
    let files = fixture.workspace.patches().join("files");
    fs::remove_file(files.join(ADDED)).unwrap();
    fs::create_dir_all(files.join("new/sub")).unwrap();
    std::os::unix::fs::symlink("../..", files.join("new/sub/top")).unwrap();
    std::os::unix::fs::symlink("new/sub/top/../outside", files.join("out")).unwrap();
    let text = patch_text(&fixture, "two").replace(ADDED, "new/sub/top\n out");
    fs::write(fixture.patch_file("two"), text).unwrap();
    let error = fixture.refuses_to_lock().to_string();
    assert!(error.contains("through another link"), "{error}");
}

#[test]
fn what_is_no_file_does_not_drop_out_of_the_series() {
    type Put = fn(&camino::Utf8Path);
    let puts: [(Put, &str); 5] = [
        (
            |path| std::os::unix::fs::symlink("nowhere", path).unwrap(),
            "a link",
        ),
        (
            |path| {
                let other = path.with_file_name("elsewhere");
                fs::write(&other, "").unwrap();
                std::os::unix::fs::symlink(other, path).unwrap();
            },
            "a link",
        ),
        (|path| fs::create_dir(path).unwrap(), "a folder"),
        (
            |path| {
                use rustix::fs::{CWD, FileType, Mode, mknodat};
                mknodat(CWD, path.as_std_path(), FileType::Fifo, Mode::RWXU, 0).unwrap();
            },
            "a pipe",
        ),
        (
            |path| {
                std::os::unix::net::UnixListener::bind(path).unwrap();
            },
            "a pipe or a device",
        ),
    ];
    for (put, kind) in puts {
        for name in ["two.patch", "files"] {
            if (name, kind) == ("files", "a folder") {
                continue;
            }
            let fixture = Fixture::new();
            let path = fixture.workspace.patches().join(name);
            if path.is_dir() {
                fs::remove_dir_all(&path).unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
            put(&path);
            let error = fixture.refuses_to_lock().to_string();
            assert!(
                error.contains(&format!("{name} is {kind}")),
                "{name}: {error}"
            );
        }
    }
}

#[test]
fn an_added_file_with_windows_line_ends_is_refused() {
    let fixture = Fixture::new();
    let added = fixture.workspace.patches().join("files").join(ADDED);
    fs::write(added, "// added whole\r\n").unwrap();
    let error = fixture.refuses_to_lock();
    assert!(
        matches!(&error, Error::LineEnds(file) if file == "patches/files/dir/added.h"),
        "{error}"
    );
}

/// A sparse file of this size takes no space, but would fill the memory if it were read.
#[test]
fn a_patch_of_a_terabyte_is_not_read() {
    let fixture = Fixture::new();
    for file in [fixture.patch_file("one"), fixture.workspace.lock_path()] {
        let fixture_file = fs::read(&file).unwrap();
        fs::OpenOptions::new()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        let error = fixture.apply().unwrap_err().to_string();
        assert!(error.contains("more than 16777216 bytes"), "{error}");
        fs::write(&file, fixture_file).unwrap();
    }
}

#[test]
fn the_header_is_complete_and_in_order() {
    let fixture = Fixture::new();
    let text = patch_text(&fixture, "one");
    assert_eq!(
        fixture.parse("one").header.field("Why"),
        ["to test", "over two lines"]
    );
    assert!(
        fault(text.replace("Upstream: none\n", "").as_bytes()).contains("expected `Upstream: …`")
    );
    assert!(fault(text.replace("Test: this\n", "").as_bytes()).contains("the header lacks Test"));
    assert!(fault(text.replace("Test: this", "Test: this ").as_bytes()).contains("Test has"));
    assert!(
        fault(
            text.replace("Subject: A patch", " Subject: A patch")
                .as_bytes()
        )
        .contains("begins with a continued")
    );
    assert!(
        fault(
            text.replace("Test: this\n", "Test: this\nMore: that\n")
                .as_bytes()
        )
        .contains("the end of the header")
    );
}

#[test]
fn series_folder_and_files_agree() {
    let fixture = Fixture::new();
    let patches = fixture.workspace.patches();
    fs::write(patches.join("stray.patch"), patch_text(&fixture, "one")).unwrap();
    fs::write(patches.join("series"), "one\ntwo\nthree\n").unwrap();
    fs::write(patches.join("files/dir/unclaimed.h"), "").unwrap();
    fs::remove_file(patches.join("files").join(ADDED)).unwrap();
    let Err(Error::Series(faults)) = Series::load(&patches) else {
        panic!("accepted")
    };
    assert_eq!(
        faults,
        [
            "series lists three, but three.patch does not exist",
            "stray.patch is not listed in series",
            "no patch adds files/dir/unclaimed.h",
            "two adds dir/added.h, but files/dir/added.h does not exist",
        ]
    );
    for (series, expected) in [
        ("one\none\n", "one is listed twice"),
        ("../one\n", "expected a patch name"),
    ] {
        fs::write(patches.join("series"), series).unwrap();
        let error = Series::load(&patches).unwrap_err().to_string();
        assert!(
            error.starts_with("patches/series:") && error.contains(expected),
            "{error}"
        );
    }
}

#[test]
fn an_added_file_must_not_be_there_already() {
    let fixture = Fixture::new();
    let patches = fixture.workspace.patches();
    fs::create_dir_all(patches.join("files")).unwrap();
    fs::rename(
        patches.join("files").join(ADDED),
        patches.join("files/b.txt"),
    )
    .unwrap();
    let text = patch_text(&fixture, "two").replace(ADDED, "b.txt");
    fs::write(fixture.patch_file("two"), text).unwrap();
    let store = crate::sources::store::Store::open(&fixture.workspace).unwrap();
    let error = fixture
        .series()
        .resolve(&store.overlay().unwrap(), fixture.base)
        .unwrap_err()
        .to_string();
    assert!(error.contains("it adds b.txt, which is in tree"), "{error}");
}

/// On a file system that ignores case, one would overwrite the other.
#[test]
fn an_added_file_must_not_differ_from_another_by_case_only() {
    let adds = |paths: &[&str]| {
        let fixture = Fixture::new();
        let files = fixture.workspace.patches().join("files");
        fs::remove_file(files.join(ADDED)).unwrap();
        for path in paths {
            fs::create_dir_all(files.join(path).parent().unwrap()).unwrap();
            fs::write(files.join(path), "").unwrap();
        }
        let text = patch_text(&fixture, "two").replace(ADDED, &paths.join("\n "));
        fs::write(fixture.patch_file("two"), text).unwrap();
        let options = Options {
            update_lock: true,
            offline: true,
            ..Options::default()
        };
        let error = apply(&fixture.workspace, &options, QUIET).unwrap_err();
        assert!(!fixture.workspace.tree().exists());
        error.to_string()
    };
    for paths in [&["A.txt"][..], &["Dir/x.h"], &["x.h", "X.h"]] {
        let error = adds(paths);
        assert!(error.contains("by case only"), "{paths:?}: {error}");
    }
}

#[test]
fn an_added_file_must_not_be_a_link_out_of_the_tree() {
    let fixture = Fixture::new();
    let added = fixture.workspace.patches().join("files").join(ADDED);
    fs::remove_file(&added).unwrap();
    std::os::unix::fs::symlink("../../outside", &added).unwrap();
    let error = Series::load(&fixture.workspace.patches()).unwrap_err();
    assert!(
        matches!(&error, Error::UnsafePath { path, .. } if path == ADDED),
        "{error}"
    );
}

#[test]
fn an_empty_file_can_be_added_and_an_applied_series_says_so() {
    let fixture = Fixture::new();
    fs::write(fixture.workspace.patches().join("files").join(ADDED), "").unwrap();
    fixture.write_lock();
    fixture.apply().unwrap();
    assert_eq!(fs::read(fixture.vendored(ADDED)).unwrap(), b"");
    assert_eq!(fixture.state(), State::Applied);
}

#[test]
fn export_refuses_what_a_diff_must_not_do() {
    let before = upstream();
    let mut after = before.clone();
    edit(&mut after, "b.txt", "line 1\n", "x\n");
    export("fine", &header("none"), &before, &after);
    after.0.remove("a.txt");
    let folder = tempfile::tempdir().unwrap();
    let workspace = crate::Workspace::at(camino::Utf8Path::from_path(folder.path()).unwrap());
    let store = crate::sources::store::Store::open(&workspace).unwrap();
    let insert =
        |tree: &crate::tree::Snapshot| store.insert(tree, &tree.listing().unwrap()).unwrap();
    let (before, after) = (insert(&before), insert(&after));
    let error =
        crate::model::patch::export(store.repo(), "bad", &header("none"), before, after, &[])
            .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("a.txt is added, deleted or changes its mode"),
        "{error}"
    );
}

fn apply_to_base(fixture: &Fixture, patch: &Patch) -> crate::Result<git2::Oid> {
    let store = crate::sources::store::Store::open(&fixture.workspace).unwrap();
    patch.apply(&store.overlay().unwrap(), fixture.base)
}

impl Fixture {
    fn state_of_vendor(&self) -> Option<()> {
        self.workspace.tree().exists().then_some(())
    }
}
