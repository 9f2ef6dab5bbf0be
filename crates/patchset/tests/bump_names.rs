//! Moves the pin to an upstream with other file names, and checks what a report may contain.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use fs_err as fs;
use patchset::bump::{self, Fate, FileChange, Options, Outcome, Report};
use patchset::progress::QUIET;
use patchset::watch::Change as Watch;
use patchset::{Error, Manifest, check};
use support::{Change, Project, Upstream, WIDEN, entry, git, kernel, waits};

fn to(wanted: &str) -> Options {
    Options {
        wanted: wanted.to_owned(),
        ..Options::default()
    }
}

fn start(project: &Project, options: &Options) -> (Report, Outcome) {
    bump::start(&project.workspace, options, QUIET).unwrap()
}

const AFTER: Change<'_> = Change {
    name: "after",
    edits: &[("src/k.cpp", "int line_35 = 35;", "long line_35 = 35;")],
    adds: &[("src/new.h", "int n;\n")],
};

fn same(text: String) -> String {
    text
}

#[test]
fn a_patch_follows_a_file_that_upstream_renamed() {
    for (change, hunks, lines) in [
        (&same as &dyn Fn(String) -> String, 0, (0, 0)),
        (
            &|text: String| text.replace("int line_5 = 5;", "int line_5 = 5;\nint new;"),
            1,
            (1, 0),
        ),
    ] {
        let upstream = Upstream::new();
        upstream.release_renamed("1.1.0", &[("src/k.cpp", "lib/kernel.cpp", change)]);
        let project = Project::new(&upstream, &[WIDEN, AFTER]);
        check::accept_watched(&project.workspace, QUIET).unwrap();
        let (report, outcome) = start(&project, &to("1.1.0"));
        assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
        for patch in &report.patches {
            let Fate::Moved(files) = &patch.fate else {
                panic!("{:?}", patch.fate)
            };
            let file = &files[0];
            assert_eq!(file.renamed_from.as_deref(), Some("src/k.cpp"));
            assert_eq!((file.path.as_str(), file.absorbed), ("lib/kernel.cpp", 0));
            assert_eq!(file.hunks.len(), hunks);
        }
        let file = &report.files[0];
        assert_eq!(file.renamed_to.as_deref(), Some("lib/kernel.cpp"));
        let expected = match lines {
            (0, 0) => FileChange::Same,
            (added, removed) => FileChange::Edited { added, removed },
        };
        assert_eq!(file.change, expected);
        let text = report.to_markdown();
        assert!(
            text.contains("| widen | moved (renamed src/k.cpp to lib/kernel.cpp")
                && !text.contains("taken up by upstream"),
            "{text}"
        );
        // The watch list follows, in both files that have it.
        assert_eq!(report.changed().count(), 0);
        let manifest = Manifest::load(&project.workspace.manifest_path()).unwrap();
        assert_eq!(manifest.watch[0].file, "lib/kernel.cpp");
        let faults = check::check(&project.workspace, check::Check::Watch, None, QUIET).faults;
        assert!(faults.is_empty(), "{faults:?}");
        let text = project.applied("lib/kernel.cpp");
        assert!(text.contains("long line_30") && text.contains("long line_35"));
        let patch = project.read("patches/widen.patch");
        assert!(patch.contains("diff --git a/lib/kernel.cpp b/lib/kernel.cpp"));
    }
}

#[test]
fn a_watched_function_is_compared_across_a_rename_and_found_where_it_went() {
    let upstream = Upstream::new();
    let change = |text: String| text.replace("a * b", "b * a");
    upstream.release_renamed("1.1.0", &[("src/k.cpp", "src/kernel.cpp", &change)]);
    let project = Project::new(&upstream, &[WIDEN]);
    let (report, _) = start(
        &project,
        &Options {
            dry_run: true,
            ..to("1.1.0")
        },
    );
    let changed: Vec<_> = report.changed().collect();
    assert!(
        changed.len() == 1 && matches!(changed[0].change, Watch::Changed(_)),
        "{changed:?}"
    );

    let start_of = kernel().find("template <int bits>").unwrap();
    let end_of = kernel().find("int line_21").unwrap();
    let function = kernel()[start_of..end_of].to_owned();
    let without = kernel().replace(&function, "");
    upstream.release(
        "1.2.0",
        &[("src/kernel.cpp", &without), ("src/dot.h", &function)],
    );
    let (report, _) = start(
        &project,
        &Options {
            dry_run: true,
            ..to("1.2.0")
        },
    );
    let changed: Vec<_> = report.changed().collect();
    assert_eq!(changed[0].change, Watch::Gone);
    assert_eq!(changed[0].now_in.as_deref(), Some("src/dot.h"));
    assert!(
        report
            .to_markdown()
            .contains("gone; `src/dot.h` defines it")
    );
}

#[test]
fn a_conflict_in_a_renamed_file_is_laid_out_under_its_new_name() {
    let upstream = Upstream::new();
    let change = |text: String| text.replace("int line_30", "short line_30");
    upstream.release_renamed("1.1.0", &[("src/k.cpp", "lib/kernel.cpp", &change)]);
    let project = Project::new(&upstream, &[WIDEN, AFTER]);
    let (report, outcome) = start(&project, &to("1.1.0"));
    let (_, worktree) = waits(outcome);
    let Fate::Conflict(conflicts) = &report.patches[0].fate else {
        panic!("{:?}", report.patches[0].fate)
    };
    assert_eq!(
        (conflicts.len(), conflicts[0].path.as_str()),
        (1, "lib/kernel.cpp")
    );
    let text = fs::read_to_string(worktree.join("lib/kernel.cpp")).unwrap();
    assert!(text.contains("<<<<<<< the new pin\n"), "{text}");
    assert!(!worktree.join("src/k.cpp").exists());
    let decided = change(kernel()).replace("short line_30", "long line_30");
    fs::write(worktree.join("lib/kernel.cpp"), decided).unwrap();
    let (_, outcome) = bump::resume(&project.workspace, false, QUIET).unwrap();
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    assert!(project.applied("lib/kernel.cpp").contains("long line_35"));
}

/// A file of the patch and a new one of upstream's that are the same on macOS and Windows.
#[test]
fn a_name_that_differs_by_case_only_is_a_conflict() {
    let upstream = Upstream::new();
    upstream.release("1.1.0", &[("src/New.h", "int m;\n")]);
    let project = Project::new(&upstream, &[WIDEN, AFTER]);
    let before = project.files();
    let (report, outcome) = start(&project, &to("1.1.0"));
    let (patch, worktree) = waits(outcome);
    assert_eq!(patch, "after");
    assert!(
        report.summary().contains("by case only"),
        "{}",
        report.summary()
    );
    assert_eq!(project.files(), before);
    let error = bump::resume(&project.workspace, false, QUIET).unwrap_err();
    assert!(error.to_string().contains("by case only"), "{error}");
    // The way out: the patch's file gets another name.
    git(&worktree, &["mv", "src/new.h", "src/other_new.h"]);
    let (_, outcome) = bump::resume(&project.workspace, false, QUIET).unwrap();
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    assert!(
        project
            .read("patches/after.patch")
            .contains("\nAdds: src/other_new.h\n")
    );
    assert_eq!(project.applied("src/other_new.h"), "int n;\n");
    assert_eq!(project.applied("src/New.h"), "int m;\n");
}

#[test]
fn commits_that_touch_watched_files_only_and_modes_are_named() {
    let upstream = Upstream::new();
    let other = Change {
        name: "other",
        edits: &[("src/other.cpp", "int other;", "long other;")],
        adds: &[],
    };
    let project = Project::new(&upstream, &[other]);
    upstream.commit(
        "Touch the watched kernel",
        &[("src/k.cpp", &kernel().replace("line_2 ", "second "))],
    );
    upstream.release_with("1.1.0", |_, index| {
        let old = index.get_path("src/other.cpp".as_ref(), 0).unwrap();
        index
            .add(&entry("src/other.cpp", 0o100_755, old.id))
            .unwrap();
    });
    let source = Some(upstream.path().to_string());
    let (report, outcome) = start(
        &project,
        &Options {
            source,
            ..to("1.1.0")
        },
    );
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    let commits = report.commits.as_ref().unwrap().join("\n");
    assert!(
        commits.contains("Touch the watched kernel") && commits.contains("Change"),
        "{commits}"
    );
    assert_eq!(report.files[0].change, FileChange::Mode);
    // No path of this machine is committed.
    for (path, bytes) in project.files() {
        let text = String::from_utf8(bytes).unwrap();
        let path_of_machine = upstream.path().as_str();
        let is_pin = path == "mlx.toml";
        assert!(is_pin || !text.contains(path_of_machine), "{path}: {text}");
    }
    assert!(report.summary().contains("a copy on one machine, commit "));
}

/// A commit that no address of the pin is known to have.
#[test]
fn a_commit_of_one_machine_is_not_called_upstreams() {
    let upstream = Upstream::new();
    upstream.release("1.1.0", &[("src/other.cpp", "int more;\n")]);
    let folder = tempfile::tempdir().unwrap();
    let clone = camino::Utf8Path::from_path(folder.path()).unwrap();
    git(clone, &["clone", "--quiet", &upstream.url(), "."]);
    let origin = |project: &Project| {
        project
            .read("mlx.toml")
            .contains("tree-origin = \"upstream\"\nlicence")
    };
    let source = Some(clone.to_string());
    let project = Project::new(&upstream, &[WIDEN]);
    let (report, _) = start(
        &project,
        &Options {
            source: source.clone(),
            ..to("1.1.0")
        },
    );
    assert!(origin(&project) && !report.unknown_to_others);

    fs::write(clone.join("src/other.cpp"), "int mine;\n").unwrap();
    git(clone, &["commit", "--quiet", "--all", "-m", "Mine"]);
    let mine = git(clone, &["rev-parse", "HEAD"]).trim().to_owned();
    let project = Project::new(&upstream, &[WIDEN]);
    let (report, outcome) = start(
        &project,
        &Options {
            source,
            ..to(&mine)
        },
    );
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    assert!(report.unknown_to_others);
    assert!(
        report
            .summary()
            .contains("No other repository is known to have this commit")
    );
    let pin = Manifest::load(&project.workspace.manifest_path())
        .unwrap()
        .mlx;
    assert_eq!(
        pin.tree_origin,
        patchset::manifest::TreeOrigin::Reconstructed
    );
    assert_eq!(pin.title(), format!("1.1.0, commit {}", &mine[..7]));
}

/// A bump with many changes: its summary still fits on two screens, and the rest is in the file.
#[test]
fn a_summary_fits_on_two_screens() {
    let upstream = Upstream::new();
    let names: Vec<_> = (1..=40).map(|n| format!("p{n}")).collect();
    let edits: Vec<_> = (1..=40)
        .map(|n| {
            let line = format!("int line_{n} = {n};");
            [("src/k.cpp", line.clone(), line.replace("int", "long"))]
        })
        .collect();
    let edits: Vec<Vec<_>> = edits
        .iter()
        .map(|edits| {
            edits
                .iter()
                .map(|(path, from, to)| (*path, from.as_str(), to.as_str()))
                .collect()
        })
        .collect();
    let changes: Vec<_> = names
        .iter()
        .zip(&edits)
        .map(|(name, edits)| Change {
            name,
            edits,
            adds: &[],
        })
        .collect();
    let mut functions = String::new();
    for n in 0..60 {
        functions += &format!("int f{n}() {{ return {n}; }}\n");
    }
    upstream.release("1.0.0", &[("src/other.cpp", &functions)]);
    let project = Project::new(&upstream, &changes);
    let watch: Vec<_> = (0..60).map(|n| format!("\"f{n}\"")).collect();
    let text = format!(
        "{}\n[[watch]]\nfile = \"src/other.cpp\"\nfunctions = [{}]\n",
        project.read("mlx.toml"),
        watch.join(", ")
    );
    fs::write(project.root().join("mlx.toml"), text).unwrap();
    upstream.release(
        "1.1.0",
        &[
            ("src/k.cpp", &kernel().replace("int line", "short line")),
            (
                "src/other.cpp",
                &functions.replace("return ", "return 1 + "),
            ),
        ],
    );
    let (report, outcome) = start(
        &project,
        &Options {
            dry_run: true,
            ..to("1.1.0")
        },
    );
    assert!(matches!(outcome, Outcome::Conflict { worktree: None, .. }));
    // Every patch was tried, and none is reported as certain to fit.
    let depends = report.patches.iter().filter(|patch| patch.depends).count();
    assert_eq!((report.conflicts().count(), depends), (2, 38));
    let summary = report.summary();
    assert!(
        summary.lines().count() <= 80,
        "{} lines:\n{summary}",
        summary.lines().count()
    );
    let file = project.read(&report.file());
    assert!(file.starts_with(&summary) && file.lines().count() > 300);
    assert!(file.contains("### p21: conflict") && file.contains("| function `f59` |"));
    let given_up = bump::abort(&project.workspace, QUIET);
    assert!(matches!(given_up, Err(Error::NoBump)), "a dry run waits");
}

/// Upstream has a folder where the patch has a file, and vice versa.
#[test]
fn a_file_against_a_folder_is_a_conflict_with_a_way_out() {
    let upstream = Upstream::new();
    upstream.release("1.1.0", &[("src/new.h/x.h", "int x;\n")]);
    let project = Project::new(&upstream, &[WIDEN, AFTER]);
    let before = project.files();
    let (report, outcome) = start(&project, &to("1.1.0"));
    let (patch, worktree) = waits(outcome);
    assert_eq!(patch, "after");
    assert!(
        report
            .summary()
            .contains("upstream has a folder where the patch adds a file"),
        "{}",
        report.summary()
    );
    assert_eq!(project.files(), before);
    // The way out: the file, which lies next to the folder, gets another name.
    fs::rename(worktree.join("src/new.h~after"), worktree.join("src/own.h")).unwrap();
    git(&worktree, &["add", "src/own.h"]);
    let (_, outcome) = bump::resume(&project.workspace, false, QUIET).unwrap();
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    assert_eq!(project.applied("src/own.h"), "int n;\n");
    assert_eq!(project.applied("src/new.h/x.h"), "int x;\n");
    // Remembering that one file is removed, but not that another is added, would lose it.
    assert!(!project.root().join("target/resolutions").exists());
}

/// Less than half of a file is unchanged: git treats it as removed and new.
#[test]
fn a_file_that_went_far_is_pointed_at() {
    let upstream = Upstream::new();
    let change = |text: String| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        for (at, line) in lines.iter_mut().enumerate() {
            if at % 5 < 3 {
                *line = format!("long another_line_{at};");
            }
        }
        lines.join("\n") + "\n"
    };
    upstream.release_renamed("1.1.0", &[("src/k.cpp", "lib/far.cpp", &change)]);
    let project = Project::new(&upstream, &[WIDEN]);
    let (report, _) = start(
        &project,
        &Options {
            dry_run: true,
            ..to("1.1.0")
        },
    );
    let summary = report.summary();
    assert!(
        summary.contains(
            "upstream removed the file that the patch edits; lib/far.cpp is the most similar file"
        ),
        "{summary}"
    );
}
