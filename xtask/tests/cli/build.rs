//! `cargo xtask build` holds `vendor/mlx`: no other run swaps the tree that it compiles, and it compiles none that is
//! being swapped.

use std::ffi::OsString;
use std::path::Path;
use std::thread::{scope, sleep};
use std::time::Duration;

use crate::support::{FILE, Project, Run};

/// Long enough for a run that does not wait to be caught; one that waits takes as long as it is made to.
const A_WHILE: Duration = Duration::from_millis(500);

/// Builds with a `cmake` that says when it was asked for its version, and answers once it may go on.
fn build(project: &Project) -> Run {
    let (started, go) = (project.path("started"), project.path("go"));
    let wait = format!(
        "touch {started}\ni=0\nwhile [ ! -e {go} ] && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done\nexit 1"
    );
    let mut path = OsString::from(project.program("cmake", &wait));
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    project.run(
        project
            .command(&["build", "--backend", "cpu"])
            .env("PATH", path),
    )
}

fn wait_for(file: impl AsRef<Path>) {
    for _ in 0..600 {
        if file.as_ref().exists() {
            return;
        }
        sleep(Duration::from_millis(100));
    }
    panic!("{} never came", file.as_ref().display());
}

#[test]
fn no_other_run_swaps_the_tree_that_is_built() {
    let project = Project::new();
    let vendored = format!("checkout/vendor/mlx/{FILE}");
    scope(|scope| {
        let build = scope.spawn(|| build(&project));
        wait_for(project.path("started"));
        let revert = scope.spawn(|| project.xtask(&["apply-overlay", "--revert"]));
        sleep(A_WHILE);
        let waits = !revert.is_finished() && project.read(&vendored).contains("long line_30");
        // Before anything may fail: the build waits for it.
        project.write("go", "");
        assert!(waits, "the tree was swapped while it was built");
        build.join().unwrap().fails_with(&["cmake 3.25 or newer"]);
        revert.join().unwrap().exits(0);
        assert!(project.read(&vendored).contains("int line_30"));
    });
}

#[test]
fn a_tree_that_is_being_swapped_is_not_built() {
    let project = Project::new();
    let vendored = format!("checkout/vendor/mlx/{FILE}");
    let whole = project.read(&vendored);
    project.write("go", "");
    // As a run would that is in the middle of a swap.
    let lock = fs_err::File::open(project.path("checkout/vendor/.mlx-lock")).unwrap();
    lock.file().lock().unwrap();
    project.write(&vendored, "half written");
    scope(|scope| {
        let build = scope.spawn(|| build(&project));
        sleep(A_WHILE);
        project.write(&vendored, &whole);
        drop(lock);
        // It saw the whole tree, and so came as far as asking for cmake.
        build.join().unwrap().fails_with(&["cmake 3.25 or newer"]);
    });
}

#[test]
fn a_tree_that_is_not_the_locks_is_not_built() {
    let project = Project::new();
    project.write("go", "");
    project.xtask(&["apply-overlay", "--revert"]).exits(0);
    build(&project).fails_with(&["mlx.lock says", "cargo xtask apply-overlay"]);
    fs_err::remove_dir_all(project.path("checkout/vendor/mlx")).unwrap();
    build(&project).fails_with(&["vendor/mlx is missing", "cargo xtask apply-overlay"]);
}
