//! `cargo xtask fetch`: what it prints about a reconstructed pin.

use crate::support::{Project, text};

#[test]
fn a_reconstructed_tree_is_confirmed_and_another_replaces_it_by_the_users_word() {
    let project = Project::new();
    let pinned = project.git("upstream", &["rev-parse", "HEAD^{tree}"]);
    project.replace(
        "checkout/mlx.toml",
        "tree-origin = \"upstream\"",
        "tree-origin = \"reconstructed\"",
    );
    let run = project.xtask(&["fetch", "--refresh"]).exits(0);
    assert!(run.out.contains("confirmed by git: commit"), "{run:?}");
    assert!(project.read("checkout/mlx.lock").contains("[confirmed]"));

    // The tag moves.
    project.write("upstream/other.cpp", &text());
    project.git("upstream", &["add", "--all"]);
    project.git("upstream", &["commit", "--quiet", "-m", "moved"]);
    project.git("upstream", &["tag", "--force", "v1.0.0"]);
    let moved = project.git("upstream", &["rev-parse", "HEAD^{tree}"]);
    let lock = project.read("checkout/mlx.lock");
    let parts = [
        pinned.as_str(),
        &moved,
        "1 added: other.cpp",
        "--accept-tree",
    ];
    project.xtask(&["fetch", "--refresh"]).fails_with(&parts);
    assert_eq!(project.read("checkout/mlx.lock"), lock);

    for id in ["", "0123", &moved[..39], "v1.0.0"] {
        project.xtask(&["fetch", "--accept-tree", id]).exits(2);
    }
    let run = project.xtask(&["fetch", "--accept-tree", &moved]).exits(0);
    let said = format!("replaced: tree {moved} is used instead of the reconstructed {pinned}");
    assert!(
        run.out.contains(&said) && !run.out.contains("confirmed"),
        "{run:?}"
    );
    let lock = project.read("checkout/mlx.lock");
    assert!(lock.contains("[replaced]") && !lock.contains("[confirmed]"));
    project.xtask(&["apply-overlay"]).exits(0);
    assert!(project.path("checkout/vendor/mlx/other.cpp").exists());
    project.xtask(&["apply-overlay", "--check"]).exits(0);
    project
        .xtask(&["apply-overlay", "--accept-tree", &pinned])
        .exits(0);
    assert!(!project.path("checkout/vendor/mlx/other.cpp").exists());
    assert!(!project.read("checkout/mlx.lock").contains("[replaced]"));
}
