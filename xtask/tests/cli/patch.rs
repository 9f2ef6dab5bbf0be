//! `cargo xtask patch`.

use crate::support::{FILE, HEADER, Project, text};

#[test]
fn a_wrong_command_line_is_usage() {
    let project = Project::new();
    for args in [
        &["patch"][..],
        &["patch", "rename"],
        &["patch", "edit", "one", "two"],
        &["patch", "export", "widen"],
    ] {
        let run = project.xtask(args).exits(2);
        assert!(run.err.contains("cargo xtask patch"), "{}", run.err);
    }
}

#[test]
fn edit_and_export_take_a_change_into_the_patch() {
    let project = Project::new();
    let run = project.xtask(&["patch", "list"]).exits(0);
    assert!(
        run.out.contains("widen") && run.out.contains(FILE),
        "{}",
        run.out
    );
    project
        .xtask(&["patch", "edit", "wider"])
        .fails_with(&["there is no patch wider; the series has widen"]);
    let worktree = "checkout/target/patches/worktree";
    let run = project.xtask(&["patch", "edit", "widen"]).exits(0);
    assert!(
        run.out.contains(project.path(worktree).as_str()),
        "{}",
        run.out
    );
    let run = project.xtask(&["patch", "export"]).exits(0);
    assert!(
        run.out.contains("the patches have not changed: widen"),
        "{}",
        run.out
    );

    project.replace(
        &format!("{worktree}/{FILE}"),
        "long line_30",
        "long long line_30",
    );
    project
        .xtask(&["patch", "export"])
        .fails_with(&["no commit has the changes of src/k.cpp"]);
    project
        .xtask(&["patch", "edit"])
        .fails_with(&["has work that was not exported", "--discard"]);
    project.git(
        worktree,
        &["commit", "--quiet", "--all", "--amend", "--no-edit"],
    );
    let run = project.xtask(&["patch", "export"]).exits(0);
    assert!(
        run.out.contains("changed: mlx.lock, patches/widen.patch"),
        "{}",
        run.out
    );
    assert!(
        project
            .read("checkout/patches/widen.patch")
            .contains("+long long line_30")
    );
}

/// A second patch on the next line, which the edit of the first one takes over.
#[test]
fn a_later_patch_that_no_longer_fits_is_resolved_in_the_worktree() {
    let project = Project::new();
    let worktree = "checkout/target/patches/worktree";
    let file = format!("{worktree}/{FILE}");
    project.xtask(&["patch", "edit"]).exits(0);
    project.replace(&file, "int line_31", "long line_31");
    let message = format!("wider\n\n{HEADER}");
    project.git(worktree, &["commit", "--quiet", "--all", "-m", &message]);
    project.xtask(&["patch", "export"]).exits(0);

    project.xtask(&["patch", "edit", "widen"]).exits(0);
    project.replace(&file, "int line_31", "short line_31");
    project.git(
        worktree,
        &["commit", "--quiet", "--all", "--amend", "--no-edit"],
    );
    let before = project.files();
    project.xtask(&["patch", "export"]).fails_with(&[
        "wider, which comes later, no longer fits in src/k.cpp",
        "git cherry-pick --continue",
        "cargo xtask patch export",
    ]);
    assert_eq!(project.files(), before);
    let resolved = text()
        .replace("int line_30", "long line_30")
        .replace("int line_31", "long long line_31");
    project.write(&file, &resolved);
    project.git(worktree, &["add", FILE]);
    project.git(
        worktree,
        &["-c", "core.editor=true", "cherry-pick", "--continue"],
    );
    let run = project.xtask(&["patch", "export"]).exits(0);
    assert!(run.out.contains("patches/wider.patch"), "{}", run.out);
    project.xtask(&["apply-overlay"]).exits(0);
    assert_eq!(
        project.read(&format!("checkout/vendor/mlx/{FILE}")),
        resolved
    );

    // No change of it is left.
    project.xtask(&["patch", "edit", "widen"]).exits(0);
    project.replace(&file, "short line_31", "long long line_31");
    project.git(
        worktree,
        &["commit", "--quiet", "--all", "--amend", "--no-edit"],
    );
    project
        .xtask(&["patch", "export"])
        .fails_with(&["no changes are left of wider", "--drop-empty"]);
    project.xtask(&["patch", "export", "--drop-empty"]).exits(0);
    assert_eq!(project.read("checkout/patches/series"), "widen\n");
}

#[test]
fn export_without_edit_says_what_comes_first() {
    let project = Project::new();
    fs_err::remove_dir_all(project.path("checkout/target/patches")).unwrap();
    project
        .xtask(&["patch", "export"])
        .fails_with(&["no patches are laid out; run `cargo xtask patch edit`"]);
}

#[test]
fn lint_names_all_faults_and_fails() {
    let project = Project::new();
    let formatter = project.program(
        "formatter",
        "[ \"$1\" = --version ] && echo formatter version 1",
    );
    let formatter = formatter.join("formatter");
    let lint = ["patch", "lint", "--clang-format", formatter.as_str()];
    let run = project.xtask(&lint).exits(0);
    assert!(run.out.contains("patches/ is in order"), "{}", run.out);
    project.replace("checkout/mlx.toml", "budget-lines = 60", "budget-lines = 1");
    project.replace("checkout/patches/widen.patch", "to see", "to look");
    project.xtask(&lint).fails_with(&[
        "patches/ is not in order",
        "change 2 upstream lines, but the budget in mlx.toml is 1",
        "patches/widen.patch has changed",
    ]);
}
