//! Edits patches as commits, and checks them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use patchset::check;
use patchset::edit::{self, Exported};
use patchset::progress::QUIET;
use patchset::{Error, Workspace};
use proptest::prelude::*;
use support::{Change, Project, Upstream, WIDEN, git};

const ADD: Change<'_> = Change {
    name: "add",
    edits: &[("src/other.cpp", "int other;", "long other;")],
    adds: &[("src/new.h", "int n;\n"), ("src/a.h", "int a;\n")],
};

fn open(project: &Project, name: Option<&str>) -> Utf8PathBuf {
    edit::open(&project.workspace, name, false, QUIET)
        .unwrap()
        .worktree
}

fn export(project: &Project) -> Result<Exported, Error> {
    edit::export(&project.workspace, false, QUIET)
}

/// The error of an export that wrote nothing.
fn refused(project: &Project) -> String {
    let before = project.files();
    let error = export(project).unwrap_err().to_string();
    assert_eq!(project.files(), before, "something was written");
    error
}

fn replace(folder: &Utf8Path, file: &str, from: &str, to: &str) {
    let path = folder.join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file} has no {from:?}");
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn what_was_laid_out_is_exported_byte_for_byte() {
    let upstream = Upstream::new();
    for changes in [&[][..], &[WIDEN], &[WIDEN, ADD], &[ADD, WIDEN]] {
        let project = Project::new(&upstream, changes);
        let before = project.files();
        for name in std::iter::once(None).chain(changes.iter().map(|change| Some(change.name))) {
            let worktree = open(&project, name);
            assert_eq!(export(&project).unwrap().changed, Vec::<String>::new());
            assert_eq!(project.files(), before);
            // Commits from another tool: rewritten, with another author and date.
            if name.is_none() && !changes.is_empty() {
                git(
                    &worktree,
                    &["rebase", "--quiet", "--force-rebase", "--root"],
                );
                let error = refused(&project);
                assert!(
                    error.contains("is not based on the pristine commit"),
                    "{error}"
                );
                edit::open(&project.workspace, None, true, QUIET).unwrap();
                let base = format!("HEAD~{}", changes.len());
                git(&worktree, &["rebase", "--quiet", "--force-rebase", &base]);
                assert_eq!(export(&project).unwrap().changed, Vec::<String>::new());
            }
        }
        assert_eq!(project.files(), before);
    }
}

#[test]
fn an_amended_commit_changes_its_patch_and_the_later_ones_follow() {
    let upstream = Upstream::new();
    let after = Change {
        name: "after",
        edits: &[("src/k.cpp", "int line_32 = 32;", "long line_32 = 32;")],
        adds: &[],
    };
    let project = Project::new(&upstream, &[WIDEN, after]);
    let worktree = open(&project, Some("widen"));
    replace(
        &worktree,
        "src/k.cpp",
        "long line_30 = 30;",
        "long line_30 = 30;\nlong more;",
    );
    git(
        &worktree,
        &["commit", "--quiet", "--all", "--amend", "--no-edit"],
    );
    let exported = export(&project).unwrap();
    assert_eq!(exported.patches, ["widen", "after"]);
    assert_eq!(
        exported.changed,
        ["mlx.lock", "patches/after.patch", "patches/widen.patch"]
    );
    let text = project.applied("src/k.cpp");
    assert!(text.contains("long more;") && text.contains("long line_32"));
    assert_eq!(export(&project).unwrap().changed, Vec::<String>::new());
}

#[test]
fn a_new_commit_is_a_new_patch_and_its_files_are_listed_for_it() {
    let upstream = Upstream::new();
    let project = Project::new(&upstream, &[WIDEN]);
    let worktree = open(&project, None);
    fs::write(worktree.join("src/new.h"), "int n;\n").unwrap();
    git(&worktree, &["add", "--all"]);
    let message = "a-new-one\n\nSubject: Add\nWhy: to see\nUpstream: no\nDrop-When: never\nAdds: none\nTest: this\n";
    git(&worktree, &["commit", "--quiet", "-m", message]);
    let exported = export(&project).unwrap();
    assert_eq!(
        exported.changed,
        [
            "mlx.lock",
            "patches/a-new-one.patch",
            "patches/files/src/new.h",
            "patches/series"
        ]
    );
    assert_eq!(
        project.read("patches/series"),
        "# The order.\nwiden\na-new-one\n"
    );
    assert!(
        project
            .read("patches/a-new-one.patch")
            .contains("\nAdds: src/new.h\n")
    );
    assert_eq!(project.applied("src/new.h"), "int n;\n");

    git(&worktree, &["reset", "--quiet", "--hard", "HEAD~1"]);
    export(&project).unwrap();
    assert_eq!(project.read("patches/series"), "# The order.\nwiden\n");
    assert!(!project.root().join("patches/files").exists());
    assert!(!project.root().join("patches/a-new-one.patch").exists());
}

#[test]
fn what_is_no_series_of_patches_is_refused() {
    let upstream = Upstream::new();
    type Spoil = fn(&Utf8Path);
    let cases: [(Spoil, &str); 10] = [
        (
            |folder| replace(folder, "src/k.cpp", "line_1 ", "first "),
            "no commit has the changes of src/k.cpp",
        ),
        (
            |folder| fs::write(folder.join("src/x.h"), "").unwrap(),
            "no commit has the changes of src/x.h",
        ),
        (
            |folder| {
                git(folder, &["checkout", "--quiet", "-b", "side", "HEAD~1"]);
                fs::write(folder.join("x"), "").unwrap();
                git(folder, &["add", "x"]);
                git(folder, &["commit", "--quiet", "-m", "side"]);
                git(folder, &["checkout", "--quiet", "overlay"]);
                git(folder, &["merge", "--quiet", "--no-edit", "side"]);
            },
            "is a merge",
        ),
        (
            |folder| {
                drop(git(
                    folder,
                    &["commit", "--quiet", "--allow-empty", "-m", "x"],
                ))
            },
            "is empty; drop it",
        ),
        (
            |folder| {
                fs::write(folder.join("blob"), b"a\0b").unwrap();
                git(folder, &["add", "blob"]);
                git(folder, &["commit", "--quiet", "--amend", "--no-edit"]);
            },
            "blob is binary",
        ),
        (
            |folder| {
                replace(folder, "src/k.cpp", "line_1 ", "first ");
                git(folder, &["commit", "--quiet", "--all", "-m", "Fix a thing"]);
            },
            "expected the patch's name (a-z, 0-9 and -) as the first line",
        ),
        (
            |folder| {
                replace(folder, "src/k.cpp", "line_1 ", "first ");
                git(
                    folder,
                    &[
                        "commit",
                        "--quiet",
                        "--all",
                        "-m",
                        "fix\n\nSubject: x\nWhy: y\n",
                    ],
                );
            },
            "the header lacks",
        ),
        (
            |folder| {
                replace(folder, "src/new.h", "int n;", "int m;");
                let message =
                    git(folder, &["log", "-1", "--format=%B"]).replace("add\n", "other\n");
                git(folder, &["commit", "--quiet", "--all", "-m", &message]);
            },
            "it edits src/new.h, which an earlier patch adds",
        ),
        (
            |folder| {
                git(folder, &["rm", "--quiet", "src/k.cpp"]);
                git(folder, &["commit", "--quiet", "--amend", "--no-edit"]);
            },
            "src/k.cpp is added, deleted or changes its mode",
        ),
        (
            |folder| {
                let message = git(folder, &["log", "-1", "--format=%B"]);
                replace(folder, "src/k.cpp", "line_1 ", "first ");
                git(folder, &["commit", "--quiet", "--all", "-m", &message]);
            },
            "add already exists",
        ),
    ];
    for (spoil, expected) in cases {
        let project = Project::new(&upstream, &[WIDEN, ADD]);
        let worktree = open(&project, None);
        spoil(&worktree);
        let error = refused(&project);
        assert!(error.contains(expected), "expected {expected:?} in {error}");
        // Work is not thrown away without being asked.
        assert!(
            matches!(
                edit::open(&project.workspace, None, false, QUIET),
                Err(Error::EditOpen(_))
            ),
            "{expected}"
        );
        edit::open(&project.workspace, None, true, QUIET).unwrap();
        export(&project).unwrap();
    }
}

const fn later(
    name: &'static str,
    edits: &'static [(&'static str, &'static str, &'static str)],
) -> Change<'static> {
    Change {
        name,
        edits,
        adds: &[],
    }
}

/// Three later patches: one fits, one conflicts with the edit, one comes after it.
const LATER: [Change<'_>; 4] = [
    WIDEN,
    later(
        "fits",
        &[("src/k.cpp", "int line_2 = 2;", "long line_2 = 2;")],
    ),
    later(
        "clashes",
        &[("src/k.cpp", "int line_31 = 31;", "long line_31 = 31;")],
    ),
    later(
        "last",
        &[("src/k.cpp", "int line_10 = 10;", "long line_10 = 10;")],
    ),
];

fn amend(worktree: &Utf8Path, from: &str, to: &str) {
    replace(worktree, "src/k.cpp", from, to);
    git(
        worktree,
        &["commit", "--quiet", "--all", "--amend", "--no-edit"],
    );
}

#[test]
fn a_later_patch_that_no_longer_fits_is_laid_out_as_a_conflict() {
    let upstream = Upstream::new();
    for skip in [false, true] {
        let project = Project::new(&upstream, &LATER);
        let worktree = open(&project, Some("widen"));
        amend(&worktree, "int line_31 = 31;", "short line_31 = 31;");
        let error = refused(&project);
        assert!(
            error.contains("clashes, which comes later, no longer fits in src/k.cpp"),
            "{error}"
        );
        let text = fs::read_to_string(worktree.join("src/k.cpp")).unwrap();
        assert!(
            text.contains("<<<<<<< the edited patches\n") && text.contains("long line_2 "),
            "{text}"
        );
        // It waits for that, and nothing is lost meanwhile.
        assert!(refused(&project).contains("cherry-pick is under way"));
        let again = edit::open(&project.workspace, None, false, QUIET);
        assert!(matches!(again, Err(Error::EditOpen(_))));
        let expected = if skip {
            git(&worktree, &["cherry-pick", "--skip"]);
            vec!["widen", "fits", "last"]
        } else {
            let resolved = fs::read_to_string(worktree.join("src/k.cpp")).unwrap();
            let start = resolved.find("<<<<<<<").unwrap();
            let end = resolved.find(">>>>>>> clashes\n").unwrap() + ">>>>>>> clashes\n".len();
            let resolved = format!(
                "{}long long line_31 = 31;\n{}",
                &resolved[..start],
                &resolved[end..]
            );
            fs::write(worktree.join("src/k.cpp"), resolved).unwrap();
            git(&worktree, &["add", "src/k.cpp"]);
            git(&worktree, &["cherry-pick", "--continue"]);
            vec!["widen", "fits", "clashes", "last"]
        };
        assert_eq!(export(&project).unwrap().patches, expected);
        assert_eq!(project.patch_names(), expected);
        let text = project.applied("src/k.cpp");
        assert_eq!(text.contains("long long line_31"), !skip);
        assert!(text.contains("long line_10"), "{text}");
        assert_eq!(export(&project).unwrap().changed, Vec::<String>::new());
    }
}

#[test]
fn a_later_patch_of_which_nothing_is_left_goes_when_told() {
    let upstream = Upstream::new();
    let project = Project::new(&upstream, &LATER);
    let worktree = open(&project, Some("widen"));
    amend(&worktree, "int line_2 = 2;", "long line_2 = 2;");
    let error = refused(&project);
    assert!(
        error.contains("no changes are left of fits, which comes later"),
        "{error}"
    );
    let exported = edit::export(&project.workspace, true, QUIET).unwrap();
    assert_eq!(exported.patches, ["widen", "clashes", "last"]);
    assert_eq!(export(&project).unwrap().changed, Vec::<String>::new());
}

#[test]
fn patches_that_changed_since_are_not_overwritten() {
    let upstream = Upstream::new();
    let project = Project::new(&upstream, &[WIDEN]);
    assert!(matches!(export(&project), Err(Error::NoEdit)));
    open(&project, None);
    fs::write(project.root().join("patches/series"), "# Another.\nwiden\n").unwrap();
    assert!(matches!(export(&project), Err(Error::EditStale)));
    let error = edit::open(&project.workspace, Some("wide"), true, QUIET)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("there is no patch wide; the series has widen"),
        "{error}"
    );
}

/// The faults that the checks of the patches find.
fn faults(workspace: &Workspace, clang_format: Option<&Utf8Path>) -> Vec<String> {
    let found = check::patches(workspace, clang_format, QUIET);
    found.faults.iter().map(ToString::to_string).collect()
}

#[test]
fn lint_finds_what_is_wrong_and_nothing_else() {
    let upstream = Upstream::new();
    let project = Project::new(&upstream, &[WIDEN, ADD]);
    assert_eq!(faults(&project.workspace, None), Vec::<String>::new());
    type Spoil = fn(&Utf8Path);
    let cases: [(Spoil, &str); 7] = [
        (
            |root| replace(root, "mlx.toml", "budget-lines = 80", "budget-lines = 3"),
            "change 4 upstream lines, but the budget in mlx.toml is 3",
        ),
        (
            |root| replace(root, "patches/widen.patch", "Why: because", "Wy: because"),
            "expected `Why: …`",
        ),
        (
            |root| replace(root, "patches/widen.patch", "because", "since"),
            "patches/widen.patch has changed",
        ),
        (
            |root| replace(root, "patches/files/src/new.h", "int n", "int m"),
            "the files that add adds have changed",
        ),
        (
            |root| fs::write(root.join("patches/files/src/b.h"), "").unwrap(),
            "no patch adds files/src/b.h",
        ),
        (
            |root| replace(root, "patches/series", "widen\n", ""),
            "widen.patch is not listed in series",
        ),
        // The change in a different form: it applies, but export would write it differently.
        (
            |root| replace(root, "patches/add.patch", "@@ -1 +1 @@", "@@ -1,1 +1,1 @@"),
            "patches/add.patch is not in its canonical form",
        ),
    ];
    for (spoil, expected) in cases {
        let project = Project::new(&upstream, &[WIDEN, ADD]);
        spoil(project.root());
        let faults = faults(&project.workspace, None);
        assert!(
            faults.iter().any(|fault| fault.contains(expected)),
            "expected {expected:?} in {faults:?}"
        );
    }
}

/// A fake formatter replaces clang-format: it rejects two spaces in a row.
#[test]
fn lint_has_the_added_lines_formatted() {
    use std::os::unix::fs::PermissionsExt as _;

    let upstream = Upstream::new();
    upstream.release(
        "1.0.0",
        &[
            (".clang-format", "---\n"),
            (
                ".pre-commit-config.yaml",
                "- repo: x/mirrors-clang-format\n  rev: v9.9.9\n",
            ),
        ],
    );
    let folder = tempfile::tempdir().unwrap();
    let program = Utf8Path::from_path(folder.path())
        .unwrap()
        .join("clang-format");
    let log = program.with_extension("log");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'clang-format version 1.2.3' && exit\necho \"$@\" >> {log}\nfor file; do :; done\nsed 's/  / /g' \"$file\"\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();

    let good = Project::new(&upstream, &[WIDEN, ADD]);
    let found = check::patches(&good.workspace, Some(&program), QUIET);
    assert_eq!(
        found.notes,
        ["the format was checked with clang-format 1.2.3; MLX asks for 9.9.9"]
    );
    let calls = fs::read_to_string(&log).unwrap();
    assert!(
        calls.contains("--lines=37:37") && calls.contains("--lines=1:1"),
        "{calls}"
    );
    let bad = Change {
        adds: &[("src/new.h", "int n;\nint  m;\n")],
        ..ADD
    };
    let bad = Project::new(&upstream, &[bad]);
    assert_eq!(
        faults(&bad.workspace, Some(&program)),
        ["src/new.h:2: not formatted as by MLX's clang-format"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// For any lines that a patch edits and any that it adds, laying it out and exporting it returns the same patch.
    #[test]
    fn any_patch_comes_back_as_it_was(
        lines in proptest::collection::btree_set(1_usize..=40, 1..6),
        texts in proptest::collection::vec("[ -~]{0,30}", 6),
        added in proptest::collection::btree_map("[a-z]{1,6}/[a-z]{1,6}\\.h", "([ -~]{0,20}\n){1,3}", 0..3),
    ) {
        let upstream = Upstream::new();
        let numbered: Vec<_> = lines
            .iter()
            .zip(&texts)
            .map(|(line, text)| (format!("int line_{line} = {line};"), format!("{text}\nint line_{line};")))
            .collect();
        let edits: Vec<_> = numbered.iter().map(|(from, to)| ("src/k.cpp", from.as_str(), to.as_str())).collect();
        let adds: Vec<_> = added.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let project = Project::new(&upstream, &[Change { name: "any", edits: &edits, adds: &adds }]);
        let before = project.files();
        open(&project, None);
        prop_assert_eq!(export(&project).unwrap().changed, Vec::<String>::new());
        prop_assert_eq!(project.files(), before);
        prop_assert_eq!(faults(&project.workspace, None), Vec::<String>::new());
    }
}
