//! A bump that waits: resolutions that are remembered, undone, or leave no change of a patch.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::os::unix::fs::{PermissionsExt as _, symlink};

use camino::Utf8Path;
use fs_err as fs;
use patchset::bump::{self, Fate, Options, Outcome, Report, When};
use patchset::progress::QUIET;
use patchset::{Error, apply};
use support::{Change, Project, Upstream, WIDEN, entry, git, kernel, waits};

const AFTER: Change<'_> = Change {
    name: "after",
    edits: &[("src/k.cpp", "int line_35 = 35;", "long line_35 = 35;")],
    adds: &[("src/new.h", "int n;\n")],
};

fn to(wanted: &str) -> Options {
    Options {
        wanted: wanted.to_owned(),
        ..Options::default()
    }
}

fn start(project: &Project, wanted: &str) -> (Report, Outcome) {
    bump::start(&project.workspace, &to(wanted), QUIET).unwrap()
}

fn resume(project: &Project) -> (Report, Outcome) {
    bump::resume(&project.workspace, false, QUIET).unwrap()
}

#[track_caller]
fn is_done(outcome: &Outcome) {
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
}

/// Upstream changes the lines of both patches; `more` is an additional difference.
fn clashing(more: &str) -> String {
    let text = kernel()
        .replace("int line_30", "short line_30")
        .replace("int line_35", "short line_35");
    text.replace("int line_1 = 1;", more)
}

fn decide(text: &str, line: &str) -> String {
    text.replace(&format!("short line_{line}"), &format!("long line_{line}"))
}

#[test]
fn what_was_decided_is_used_again_when_the_same_lines_meet() {
    let upstream = Upstream::new();
    upstream.release("1.1.0", &[("src/k.cpp", &clashing("int line_1 = 1;"))]);
    let project = Project::new(&upstream, &[WIDEN, AFTER]);
    let (_, worktree) = waits(start(&project, "1.1.0").1);
    let text = decide(&clashing("int line_1 = 1;"), "30");
    fs::write(worktree.join("src/k.cpp"), &text).unwrap();
    let (name, _) = waits(resume(&project).1);
    assert_eq!(name, "after");
    bump::abort(&project.workspace, QUIET).unwrap();

    // Another release with other lines around it: the first conflict is the same.
    upstream.release(
        "1.2.0",
        &[("src/k.cpp", &clashing("int first;\nint more;"))],
    );
    let dry = Options {
        dry_run: true,
        ..to("1.2.0")
    };
    let (report, _) = bump::start(&project.workspace, &dry, QUIET).unwrap();
    assert_eq!(report.patches[0].fate, Fate::Resolved(When::Before));
    let (report, outcome) = start(&project, "1.2.0");
    let (name, worktree) = waits(outcome);
    assert_eq!(name, "after");
    assert!(
        report
            .summary()
            .contains("| widen | resolved as before: read it |")
    );
    let text = fs::read_to_string(worktree.join("src/k.cpp")).unwrap();
    assert!(
        text.contains("long line_30") && text.contains("int more;"),
        "{text}"
    );
    let both = decide(&decide(&clashing("int first;\nint more;"), "30"), "35");
    fs::write(worktree.join("src/k.cpp"), &both).unwrap();
    is_done(&resume(&project).1);
    assert_eq!(project.applied("src/k.cpp"), both);

    // These lines, changed differently by upstream, are another conflict.
    let project = Project::new(&upstream, &[WIDEN]);
    waits(start(&project, "1.2.0").1);
}

#[test]
fn a_step_back_asks_again_with_what_was_decided() {
    let upstream = Upstream::new();
    let new = clashing("int line_1 = 1;");
    upstream.release("1.1.0", &[("src/k.cpp", &new)]);
    let project = Project::new(&upstream, &[WIDEN, AFTER]);
    let back = |discard| bump::back(&project.workspace, discard, QUIET);
    let (_, worktree) = waits(start(&project, "1.1.0").1);
    assert!(matches!(back(false), Err(Error::NothingDecided(name)) if name == "widen"));
    let file = worktree.join("src/k.cpp");
    let first = decide(&new, "30");
    fs::write(&file, &first).unwrap();
    waits(resume(&project).1);

    // Unfinished work on the second is not lost without being asked.
    let marked = fs::read_to_string(&file).unwrap();
    fs::write(&file, marked.replace("int line_1 ", "int touched ")).unwrap();
    assert!(matches!(back(false), Err(Error::BumpEdited { patch, .. }) if patch == "after"));
    let (name, _) = back(true).unwrap();
    assert_eq!(name, "widen");
    assert_eq!(fs::read_to_string(&file).unwrap(), first);
    // Git still knows the conflict.
    git(&worktree, &["checkout", "--conflict=diff3", "src/k.cpp"]);
    assert!(fs::read_to_string(&file).unwrap().contains("<<<<<<< "));
    let other = new.replace("short line_30", "long long line_30");
    fs::write(&file, &other).unwrap();
    waits(resume(&project).1);

    // Finished work comes back by itself.
    let both = decide(&other, "35");
    fs::write(&file, &both).unwrap();
    assert_eq!(back(false).unwrap().0, "widen");
    let (report, outcome) = resume(&project);
    is_done(&outcome);
    assert_eq!(report.patches[0].fate, Fate::Resolved(When::Now));
    assert_eq!(report.patches[1].fate, Fate::Resolved(When::Before));
    assert_eq!(project.applied("src/k.cpp"), both);
    assert!(matches!(back(false), Err(Error::NoBump)));
}

#[test]
fn a_remembered_decision_can_be_taken_back_too() {
    let upstream = Upstream::new();
    let new = clashing("int line_1 = 1;");
    upstream.release("1.1.0", &[("src/k.cpp", &new)]);
    let project = Project::new(&upstream, &[WIDEN, AFTER]);
    let (_, worktree) = waits(start(&project, "1.1.0").1);
    let file = worktree.join("src/k.cpp");
    fs::write(&file, decide(&new, "30")).unwrap();
    waits(resume(&project).1);
    bump::abort(&project.workspace, QUIET).unwrap();
    let (name, _) = waits(start(&project, "1.1.0").1);
    assert_eq!(name, "after");
    let (name, _) = bump::back(&project.workspace, false, QUIET).unwrap();
    assert_eq!(name, "widen");
    let other = new.replace("short line_30", "long long line_30");
    fs::write(&file, &other).unwrap();
    waits(resume(&project).1);
    fs::write(&file, decide(&other, "35")).unwrap();
    is_done(&resume(&project).1);
    assert!(project.applied("src/k.cpp").contains("long long line_30"));
}

/// Two patches; upstream has removed the file that the first one edits.
#[test]
fn a_deletion_that_a_person_follows_is_not_called_absorbed() {
    let upstream = Upstream::new();
    upstream.release_with("1.1.0", |_, index| {
        index.remove_path("src/other.cpp".as_ref()).unwrap();
    });
    let other = Change {
        name: "other",
        edits: &[("src/other.cpp", "int other;", "long other;")],
        adds: &[],
    };
    let project = Project::new(&upstream, &[other, AFTER]);
    let before = project.files();
    let (report, outcome) = start(&project, "1.1.0");
    let (_, worktree) = waits(outcome);
    assert!(
        report
            .summary()
            .contains("upstream removed the file that the patch edits")
    );
    let file = worktree.join("src/other.cpp");
    // Left as it is, it would be an unknown file.
    let error = bump::resume(&project.workspace, false, QUIET).unwrap_err();
    assert!(
        error.to_string().contains("src/other.cpp is neither MLX's"),
        "{error}"
    );
    fs::remove_file(&file).unwrap();
    let (report, outcome) = resume(&project);
    let Outcome::Absorbed { names, waits: true } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(names, ["other"]);
    assert_eq!(report.patches[0].fate, Fate::Emptied);
    let text = report.to_markdown();
    assert!(
        text.contains("no change left") && !text.contains("absorbed"),
        "{text}"
    );
    assert_eq!(project.files(), before);
    // A new bump remembers it.
    bump::abort(&project.workspace, QUIET).unwrap();
    let (report, outcome) = start(&project, "1.1.0");
    assert!(
        matches!(outcome, Outcome::Absorbed { waits: false, .. }),
        "{outcome:?}"
    );
    assert_eq!(report.patches[0].fate, Fate::Emptied);
    fs::remove_dir_all(project.root().join("target/resolutions")).unwrap();
    waits(start(&project, "1.1.0").1);
    fs::remove_file(&file).unwrap();
    resume(&project);
    // And this one continues from there.
    let (_, outcome) = bump::resume(&project.workspace, true, QUIET).unwrap();
    is_done(&outcome);
    assert_eq!(project.patch_names(), ["after"]);
    assert!(!project.root().join("target/bump").exists());
}

#[test]
fn an_absorbed_patch_can_be_dropped_after_a_conflict() {
    let upstream = Upstream::new();
    let new = kernel()
        .replace("int line_30", "long line_30")
        .replace("int line_35", "short line_35");
    upstream.release("1.1.0", &[("src/k.cpp", &new)]);
    let project = Project::new(&upstream, &[WIDEN, AFTER]);
    let (name, worktree) = waits(start(&project, "1.1.0").1);
    assert_eq!(name, "after");
    fs::write(worktree.join("src/k.cpp"), decide(&new, "35")).unwrap();
    let (_, outcome) = resume(&project);
    assert!(
        matches!(&outcome, Outcome::Absorbed { names, waits: true } if names == &["widen"]),
        "{outcome:?}"
    );
    let (_, outcome) = bump::resume(&project.workspace, true, QUIET).unwrap();
    is_done(&outcome);
    assert_eq!(project.patch_names(), ["after"]);
}

#[test]
fn an_added_file_is_lost_only_on_purpose() {
    let upstream = Upstream::new();
    let new = kernel().replace("int line_35", "short line_35");
    upstream.release("1.1.0", &[("src/k.cpp", &new)]);
    for on_purpose in [false, true] {
        let project = Project::new(&upstream, &[AFTER]);
        let (_, worktree) = waits(start(&project, "1.1.0").1);
        fs::write(worktree.join("src/k.cpp"), decide(&new, "35")).unwrap();
        fs::remove_file(worktree.join("src/new.h")).unwrap();
        let error = bump::resume(&project.workspace, false, QUIET).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("src/new.h, which after adds, is missing"),
            "{error}"
        );
        // Both ways that the message names.
        if on_purpose {
            git(&worktree, &["rm", "--quiet", "--cached", "src/new.h"]);
        } else {
            git(&worktree, &["checkout", "--quiet", "--", "src/new.h"]);
        }
        is_done(&resume(&project).1);
        let adds = if on_purpose { "none" } else { "src/new.h" };
        let text = project.read("patches/after.patch");
        assert!(text.contains(&format!("\nAdds: {adds}\n")), "{text}");
        assert_eq!(
            project.root().join("patches/files/src/new.h").exists(),
            !on_purpose
        );
        assert!(project.applied("src/k.cpp").contains("long line_35"));
    }
}

#[test]
fn a_bump_that_waits_is_seen_and_one_that_does_not_read_is_given_up() {
    let upstream = Upstream::new();
    upstream.release("1.1.0", &[("src/k.cpp", &clashing("int line_1 = 1;"))]);
    let project = Project::new(&upstream, &[WIDEN]);
    let seen = |project: &Project| bump::waiting(&project.workspace).unwrap();
    assert_eq!(seen(&project), None);
    let (_, worktree) = waits(start(&project, "1.1.0").1);
    let waiting = seen(&project).unwrap();
    assert_eq!(
        (waiting.patch.as_str(), waiting.to.as_str()),
        ("widen", "1.1.0")
    );
    assert_eq!((waiting.worktree, waiting.stale), (worktree, false));
    let (_, status) = patchset::state::status(&project.workspace, QUIET).unwrap();
    assert_eq!(status.bump.unwrap().patch, "widen");
    let series = project.workspace.patches().join("series");
    fs::write(&series, "# Another comment.\nwiden\n").unwrap();
    assert!(seen(&project).unwrap().stale);
    fs::write(project.root().join("target/bump/state.toml"), "patch = ").unwrap();
    assert!(bump::waiting(&project.workspace).is_err());
    let (_, status) = patchset::state::status(&project.workspace, QUIET).unwrap();
    assert_eq!((status.state, status.bump), ("applied", None));
    let error = status.bump_error.unwrap();
    assert!(error.contains("target/bump/state.toml"), "{error}");
    bump::abort(&project.workspace, QUIET).unwrap();
    assert_eq!(seen(&project), None);
}

/// A patch of two files: one was resolved before, the other is new.
#[test]
fn what_was_decided_of_one_file_is_laid_out_beside_what_is_not() {
    let upstream = Upstream::new();
    let both = Change {
        name: "both",
        edits: &[
            ("src/k.cpp", "int line_30 = 30;", "long line_30 = 30;"),
            ("src/other.cpp", "int other;", "long other;"),
        ],
        adds: &[],
    };
    let project = Project::new(&upstream, &[both]);
    let new = kernel().replace("int line_30", "short line_30");
    upstream.release("1.1.0", &[("src/k.cpp", &new)]);
    let (_, worktree) = waits(start(&project, "1.1.0").1);
    fs::write(worktree.join("src/k.cpp"), decide(&new, "30")).unwrap();
    is_done(&resume(&project).1);

    // The project at the old pin, with its memory.
    let again = Project::new(&upstream, &[both]);
    let memory = "target/resolutions";
    for entry in fs::read_dir(project.root().join(memory)).unwrap() {
        let entry = entry.unwrap();
        fs::create_dir_all(again.root().join(memory)).unwrap();
        let to = again
            .root()
            .join(memory)
            .join(entry.file_name().to_str().unwrap());
        fs::copy(entry.path(), to).unwrap();
    }
    upstream.release("1.2.0", &[("src/other.cpp", "short other;\n")]);
    let (report, outcome) = start(&again, "1.2.0");
    let (_, worktree) = waits(outcome);
    let Fate::Conflict(files) = &report.patches[0].fate else {
        panic!("{:?}", report.patches[0].fate)
    };
    let decided: Vec<_> = files
        .iter()
        .map(|file| (file.path.as_str(), file.decided))
        .collect();
    assert_eq!(decided, [("src/k.cpp", true), ("src/other.cpp", false)]);
    assert!(report.summary().contains("(decided before)"));
    let text = |path: &str| fs::read_to_string(worktree.join(path)).unwrap();
    assert_eq!(text("src/k.cpp"), decide(&new, "30"));
    assert!(text("src/other.cpp").contains("<<<<<<< "));
}

/// A resolution that changes another file is not remembered in part, and going back does not lose it.
#[test]
fn a_decision_that_changes_other_files_is_not_remembered_in_part() {
    let upstream = Upstream::new();
    let new = clashing("int line_1 = 1;");
    upstream.release("1.1.0", &[("src/k.cpp", &new)]);
    let project = Project::new(&upstream, &[WIDEN, AFTER]);
    let (_, worktree) = waits(start(&project, "1.1.0").1);
    let (file, other) = (worktree.join("src/k.cpp"), worktree.join("src/other.cpp"));
    fs::write(&file, decide(&new, "30")).unwrap();
    waits(resume(&project).1);
    fs::write(&file, decide(&decide(&new, "30"), "35")).unwrap();
    fs::write(&other, "int other;\nint more;\n").unwrap();
    let error = bump::back(&project.workspace, false, QUIET).unwrap_err();
    assert!(matches!(error, Error::BumpEdited { .. }), "{error}");
    let count = || {
        fs::read_dir(project.root().join("target/resolutions"))
            .unwrap()
            .count()
    };
    assert_eq!(count(), 1);
    is_done(&resume(&project).1);
    assert_eq!(count(), 1);
    assert!(project.applied("src/other.cpp").contains("int more;"));
}

/// Puts the file made by `make` in the place of one that a conflict left.
fn put(worktree: &Utf8Path, path: &str, make: impl FnOnce(&Utf8Path)) {
    let file = worktree.join(path);
    for entry in fs::read_dir(file.parent().unwrap()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if name
            .to_str()
            .unwrap()
            .starts_with(file.file_name().unwrap())
        {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    make(&file);
}

fn executable(file: &Utf8Path, text: &str) {
    fs::write(file, text).unwrap();
    fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Only text is remembered; the kind of file would be lost.
#[test]
fn a_link_and_another_mode_are_decided_anew_each_time() {
    let other = Change {
        name: "other",
        edits: &[
            ("src/other.cpp", "int other;", "long other;"),
            ("src/k.cpp", "int line_1 = 1;", "long line_1 = 1;"),
        ],
        adds: &[],
    };
    type Make = fn(&Utf8Path);
    let link: Make = |file| symlink("k.cpp", file).unwrap();
    let text: Make = |file| fs::write(file, "long long other;\n").unwrap();
    let program: Make = |file| executable(file, "long long other;\n");
    for (upstreams_mode, upstreams_text, decision, is_patch) in [
        (0o120_000, "k.cpp", link, true),
        (0o120_000, "k.cpp", text, false),
        (0o100_644, "short other;\n", link, false),
        (0o100_644, "short other;\n", program, false),
    ] {
        let upstream = Upstream::new();
        upstream.release_with("1.1.0", |repo, index| {
            let blob = repo.blob(upstreams_text.as_bytes()).unwrap();
            index
                .add(&entry("src/other.cpp", upstreams_mode, blob))
                .unwrap();
        });
        let new = kernel().replace("int line_35", "short line_35");
        upstream.release("1.1.0", &[("src/k.cpp", &new)]);
        let project = Project::new(&upstream, &[other, AFTER]);
        for _ in 0..2 {
            let (name, worktree) = waits(start(&project, "1.1.0").1);
            assert_eq!(name, "other");
            put(&worktree, "src/other.cpp", decision);
            let (name, _) = waits(resume(&project).1);
            assert_eq!(name, "after");
            bump::abort(&project.workspace, QUIET).unwrap();
        }
        // The others are asked again, and rejected in the end: a patch changes no mode.
        if !is_patch {
            continue;
        }
        let (_, worktree) = waits(start(&project, "1.1.0").1);
        put(&worktree, "src/other.cpp", decision);
        let (_, worktree) = waits(resume(&project).1);
        let both = decide(&new, "35").replace("int line_1 ", "long line_1 ");
        fs::write(worktree.join("src/k.cpp"), both).unwrap();
        is_done(&resume(&project).1);
        apply::apply(&project.workspace, &apply::Options::default(), QUIET).unwrap();
        let found = fs::read_link(project.workspace.tree().join("src/other.cpp")).unwrap();
        assert_eq!(found.to_str(), Some("k.cpp"));
    }
}

#[test]
fn a_worktree_that_is_gone_is_laid_out_anew() {
    let upstream = Upstream::new();
    let new = clashing("int line_1 = 1;");
    upstream.release("1.1.0", &[("src/k.cpp", &new)]);
    let project = Project::new(&upstream, &[WIDEN, AFTER]);
    let (_, worktree) = waits(start(&project, "1.1.0").1);
    let file = worktree.join("src/k.cpp");
    fs::write(&file, decide(&new, "30")).unwrap();
    waits(resume(&project).1);
    let marked = fs::read_to_string(&file).unwrap();
    fs::remove_dir_all(&worktree).unwrap();
    let error = bump::resume(&project.workspace, false, QUIET).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("it was missing, and has been laid out again"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), marked);
    fs::write(&file, decide(&decide(&new, "30"), "35")).unwrap();
    is_done(&resume(&project).1);
}

#[test]
fn a_cache_that_was_cleared_is_named_and_the_bump_begins_anew() {
    let upstream = Upstream::new();
    let new = clashing("int line_1 = 1;");
    upstream.release("1.1.0", &[("src/k.cpp", &new)]);
    let project = Project::new(&upstream, &[WIDEN, AFTER]);
    let (_, worktree) = waits(start(&project, "1.1.0").1);
    fs::write(worktree.join("src/k.cpp"), decide(&new, "30")).unwrap();
    waits(resume(&project).1);
    fs::remove_dir_all(project.workspace.cache()).unwrap();
    // The pinned files are fetched first, as with any command.
    let fetch = patchset::fetch::Options::default();
    patchset::fetch::fetch(&project.workspace, &fetch, QUIET).unwrap();
    let error = bump::resume(&project.workspace, false, QUIET).unwrap_err();
    assert!(matches!(error, Error::BumpCleared), "{error}");
    bump::abort(&project.workspace, QUIET).unwrap();
    let (name, worktree) = waits(start(&project, "1.1.0").1);
    assert_eq!(name, "after", "the decision is forgotten");
    let both = decide(&decide(&new, "30"), "35");
    fs::write(worktree.join("src/k.cpp"), &both).unwrap();
    is_done(&resume(&project).1);
}
