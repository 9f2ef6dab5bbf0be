//! `cargo xtask env` provides `vendor/mlx` only if it is the lock's final tree.

use mlx_prefix::{Backend, Stamp};

use crate::stamp::stamp;
use crate::support::{FILE, Project};

/// The next error after the check in this project, whose MLX needs no inputs.
const PASSED: &str = "mlx.toml has no input named fmt";

/// A project whose prefix has only a stamp, of the back-end with which Python too uses the source.
fn built() -> Project {
    let project = Project::new();
    let lock: toml::Table = toml::from_str(&project.read("checkout/mlx.lock")).unwrap();
    let prefix = project.path("checkout/target/mlx/current");
    fs_err::create_dir_all(&prefix).unwrap();
    let stamp = Stamp {
        base_tree: lock["base_tree"].as_str().unwrap().to_owned(),
        ..stamp(
            "1.0.0",
            lock["final_tree"].as_str().unwrap(),
            Backend::Metal,
        )
    };
    stamp.write(&prefix).unwrap();
    project
}

/// Both ways to provide the source fail like this, and nothing is left for a consumer to use.
#[track_caller]
fn refused(project: &Project, parts: &[&str]) {
    for consumer in ["cmake", "python"] {
        let run = project.xtask(&["env", "--consumer", consumer]);
        run.fails_with(parts);
    }
    let left = project.path("checkout/target/mlx/env");
    assert!(!left.exists(), "{left} was written");
}

#[test]
fn the_locks_tree_is_handed_over() {
    let project = built();
    for consumer in ["cmake", "python"] {
        let run = project.xtask(&["env", "--consumer", consumer]);
        run.fails_with(&[PASSED]);
    }
    // No source, so nothing to check.
    project.xtask(&["apply-overlay", "--revert"]).exits(0);
    project.xtask(&["env", "--consumer", "rust"]).exits(0);
}

#[test]
fn a_reverted_tree_is_not_handed_over() {
    let project = built();
    project.xtask(&["apply-overlay", "--revert"]).exits(0);
    refused(&project, &["mlx.lock has", "cargo xtask apply-overlay"]);
}

#[test]
fn an_edited_tree_is_not_handed_over() {
    let project = built();
    project.replace(
        &format!("checkout/vendor/mlx/{FILE}"),
        "int line_5 = 5",
        "int line_5 = 6",
    );
    refused(&project, &["mlx.lock has", "cargo xtask status"]);
}

#[test]
fn an_absent_tree_is_not_handed_over() {
    let project = built();
    fs_err::remove_dir_all(project.path("checkout/vendor/mlx")).unwrap();
    refused(
        &project,
        &["vendor/mlx is missing", "cargo xtask apply-overlay"],
    );
}

#[test]
fn a_prefix_of_another_tree_comes_with_a_way_out() {
    let project = built();
    let stamp = Stamp {
        jit: true,
        ..stamp("1.0.0", "another", Backend::Sim)
    };
    for folder in ["bundle", "checkout/target/mlx/current"] {
        fs_err::create_dir_all(project.path(folder)).unwrap();
        stamp.write(project.path(folder)).unwrap();
    }
    let env = ["env", "--consumer", "rust"];
    let own = project.xtask(&env);
    own.fails_with(&["tree another", "run `cargo xtask build --jit` first"]);
    let bundle = project.path("bundle");
    let named = project.xtask(&[&env[..], &["--prefix", bundle.as_str()]].concat());
    named.fails_with(&["tree another", "without `--prefix`"]);
}
