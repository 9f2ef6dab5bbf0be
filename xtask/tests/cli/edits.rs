//! Tests what happens to edits made in `vendor/mlx` by hand.

use crate::support::{FILE, HEADER, Project};

#[test]
fn what_doctor_says_keeps_edits_and_makes_them_a_patch() {
    let project = Project::new();
    let vendored = format!("checkout/vendor/mlx/{FILE}");
    project.replace(&vendored, "int line_5 ", "long line_5 ");
    let edited = project.read(&vendored);

    let report = project.xtask(&["doctor"]).out;
    for part in [
        "`cargo xtask apply-overlay --discard-edits`",
        "vendor/mlx-edits-<n>/",
        "docs/guide/write-a-patch.md",
    ] {
        assert!(report.contains(part), "no {part:?} in {report}");
    }
    project
        .xtask(&["apply-overlay", "--discard-edits"])
        .exits(0);
    assert_ne!(project.read(&vendored), edited);
    let kept = project.read(&format!("checkout/vendor/mlx-edits-1/{FILE}"));
    assert_eq!(kept, edited);

    // As described in docs/guide/write-a-patch.md.
    project.xtask(&["patch", "edit"]).exits(0);
    let worktree = "checkout/target/patches/worktree";
    project.write(&format!("{worktree}/{FILE}"), &kept);
    let message = format!("widen-another\n\n{HEADER}");
    project.git(worktree, &["commit", "--quiet", "--all", "-m", &message]);
    project.xtask(&["patch", "export"]).exits(0);
    project.xtask(&["apply-overlay"]).exits(0);
    assert_eq!(project.read(&vendored), edited);
}

/// A worktree laid out with other bytes or modes would be exported as changes.
#[test]
fn a_persons_settings_of_git_do_not_reach_the_worktree() {
    let project = Project::new();
    fs_err::os::unix::fs::symlink(FILE, project.path("upstream/link")).unwrap();
    project.release("1.1.0", &crate::support::text());
    project.xtask(&["bump-pin", "1.1.0"]).exits(0);
    project.xtask(&["apply-overlay"]).exits(0);
    let home = project.path("home");
    project.write("home/attributes", "* text eol=crlf\n");
    let settings = format!(
        "[core]\n\tsymlinks = false\n\tautocrlf = true\n\tattributesFile = {home}/attributes\n"
    );
    project.write("home/.gitconfig", &settings);
    project.xtask(&["patch", "edit"]).exits(0);
    let worktree = "checkout/target/patches/worktree";
    assert!(project.path(worktree).join("link").is_symlink());
    assert!(!project.read(&format!("{worktree}/{FILE}")).contains('\r'));
    let run = project.xtask(&["patch", "export"]).exits(0);
    assert!(run.out.contains("the patches have not changed"), "{run:?}");
}
