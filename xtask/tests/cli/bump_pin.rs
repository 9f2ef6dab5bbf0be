//! `cargo xtask bump-pin`.

use crate::support::{FILE, Project, text};

const WORKTREE: &str = "checkout/target/bump/worktree";

#[test]
fn a_wrong_command_line_is_usage() {
    let project = Project::new();
    for args in [
        &["bump-pin"][..],
        &["bump-pin", "1.1.0", "--continue"],
        &["bump-pin", "1.1.0", "--abort"],
        &["bump-pin", "--continue", "--abort"],
        &["bump-pin", "--continue", "--dry-run"],
        &["bump-pin", "--continue", "--back"],
        &["bump-pin", "1.1.0", "--back"],
        &["bump-pin", "--continue", "--discard"],
        &["bump-pin", "1.1.0", "--no-such-flag"],
    ] {
        project.xtask(args).shows_usage();
    }
    // For a value that is invalid by itself, the error names what was expected.
    let run = project
        .xtask(&["bump-pin", "1.1.0", "--tree", "abc"])
        .exits(2);
    assert!(run.err.contains("40 hexadecimal digits"), "{}", run.err);
}

#[test]
fn a_bump_that_goes_through() {
    let project = Project::new();
    let before = project.files();
    project
        .xtask(&["bump-pin", "9.9.9"])
        .fails_with(&["no source provides MLX 9.9.9", "v1.0.0"]);
    project.release("1.1.0", &text().replace("int line_2 ", "int second "));
    let run = project.xtask(&["bump-pin", "1.1.0", "--dry-run"]).exits(0);
    assert!(
        run.out.contains("| widen | clean |") && run.out.contains("the project was not changed"),
        "{}",
        run.out
    );
    assert_eq!(project.files(), before);

    let run = project.xtask(&["bump-pin", "1.1.0"]).exits(0);
    let kept = project.read("checkout/docs/pin-moves/1.0.0-to-1.1.0.md");
    let report = project.read("checkout/target/pin-moves/1.0.0-to-1.1.0.md");
    assert!(report.starts_with(&kept) && report.len() > kept.len());
    let summary = run.out.split("\nthe full report: ").next().unwrap();
    assert_eq!(summary, kept);
    assert!(
        run.out.contains("next: `cargo xtask apply-overlay`"),
        "{}",
        run.out
    );
    let run = project
        .xtask(&["bump-pin", "1.1.0"])
        .fails_with(&["pins v1.1.0 already"]);
    assert_eq!(run.out, "");
    project
        .xtask(&["apply-overlay", "--check"])
        .fails_with(&["vendor/mlx is stale"]);
    project.xtask(&["apply-overlay"]).exits(0);
    project.xtask(&["apply-overlay", "--check"]).exits(0);
    let text = project.read(&format!("checkout/vendor/mlx/{FILE}"));
    assert!(
        text.contains("int second ") && text.contains("long line_30"),
        "{text}"
    );
}

/// Many commits have the version of the last release.
#[test]
fn a_commit_between_releases_is_called_by_its_id() {
    let project = Project::new();
    project.write(
        &format!("upstream/{FILE}"),
        &text().replace("int line_2 ", "int second "),
    );
    project.git(
        "upstream",
        &["commit", "--quiet", "--all", "-m", "On the way"],
    );
    let commit = project.git("upstream", &["rev-parse", "HEAD"]);
    let run = project.xtask(&["bump-pin", &commit]).exits(0);
    assert!(
        run.out
            .contains(&format!("# MLX v1.0.0 to {}", &commit[..7])),
        "{}",
        run.out
    );
    let run = project.xtask(&["status"]).exits(0);
    let title = format!("MLX 1.0.0, commit {}: stale", &commit[..7]);
    assert!(run.out.starts_with(&title), "{}", run.out);
}

#[test]
fn a_conflict_is_resolved_or_given_up() {
    let project = Project::new();
    let before = project.files();
    project
        .xtask(&["bump-pin", "--continue"])
        .fails_with(&["no bump waits"]);
    project
        .xtask(&["bump-pin", "--abort"])
        .fails_with(&["no bump waits"]);
    let upstream = text().replace("int line_30", "short line_30");
    project.release("1.1.0", &upstream);
    let run = project
        .xtask(&["bump-pin", "1.1.0", "--dry-run"])
        .fails_with(&["this was a dry run"]);
    assert!(
        run.out.contains("| widen | **conflict** in 1 file |"),
        "{}",
        run.out
    );
    let way_on = [
        "cargo xtask bump-pin --continue",
        "cargo xtask bump-pin --abort",
    ];
    project.xtask(&["bump-pin", "1.1.0"]).fails_with(&way_on);
    assert_eq!(project.files(), before);
    project
        .xtask(&["bump-pin", "1.1.0"])
        .fails_with(&["a bump waits for a decision on widen"]);
    project
        .xtask(&["bump-pin", "--continue"])
        .fails_with(&[FILE, "it still has a conflict marker"]);
    assert_eq!(project.files(), before);
    project
        .xtask(&["bump-pin", "--back"])
        .fails_with(&["no conflict was resolved before widen", "--abort"]);
    let waits = "a bump to MLX 1.1.0 waits: resolve widen in ";
    let run = project.xtask(&["status"]).exits(0);
    assert!(run.out.contains(waits), "{}", run.out);
    let run = project.xtask(&["status", "--json"]).exits(0);
    assert!(run.out.contains("\"patch\": \"widen\""), "{}", run.out);
    let run = project.xtask(&["doctor"]);
    assert!(run.out.contains(waits), "{}", run.out);

    project.xtask(&["bump-pin", "--abort"]).exits(0);
    assert!(!project.path(WORKTREE).exists());
    let run = project.xtask(&["status"]).exits(0);
    assert!(!run.out.contains("a bump"), "{}", run.out);
    assert_eq!(project.files(), before);

    project.xtask(&["bump-pin", "1.1.0"]).exits(1);
    let resolved = text().replace("int line_30", "long long line_30");
    project.write(&format!("{WORKTREE}/{FILE}"), &resolved);
    let run = project.xtask(&["bump-pin", "--continue"]).exits(0);
    assert!(
        run.out.contains("| widen | resolved by hand |"),
        "{}",
        run.out
    );
    project.xtask(&["apply-overlay"]).exits(0);
    assert_eq!(
        project.read(&format!("checkout/vendor/mlx/{FILE}")),
        resolved
    );
}

#[test]
fn an_absorbed_patch_goes_only_when_told() {
    let project = Project::new();
    let before = project.files();
    project.release("1.1.0", &text().replace("int line_30", "long line_30"));
    let run = project
        .xtask(&["bump-pin", "1.1.0"])
        .fails_with(&["no change is left of widen", "--drop-absorbed"]);
    assert!(run.out.contains("| widen | **absorbed**"), "{}", run.out);
    assert_eq!(project.files(), before);
    project
        .xtask(&["bump-pin", "1.1.0", "--drop-absorbed"])
        .exits(0);
    assert_eq!(project.read("checkout/patches/series"), "");
}

#[test]
fn a_vendor_that_was_edited_stops_it() {
    let project = Project::new();
    project.release("1.1.0", &text());
    project.write(&format!("checkout/vendor/mlx/{FILE}"), "edited\n");
    project.xtask(&["bump-pin", "1.1.0"]).fails_with(&[
        "vendor/mlx was edited by hand",
        FILE,
        "--discard-edits",
    ]);
}
