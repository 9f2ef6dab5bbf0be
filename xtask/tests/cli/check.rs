//! `cargo xtask check`.

use crate::support::{FILE, Project};

const PROJECT: [&str; 6] = ["series", "lock", "budget", "lint", "watch", "tree"];

fn check<'a>(names: &[&'a str]) -> Vec<&'a str> {
    [&["check"], names].concat()
}

#[test]
fn a_wrong_command_line_is_usage() {
    let project = Project::new();
    project.xtask(&["check", "everything"]).exits(2);
    let run = project.xtask(&["check", "lock", "--accept"]).exits(2);
    assert!(run.err.contains("check watch --accept"), "{}", run.err);
}

#[test]
fn every_failure_is_told_with_what_to_do_and_the_rest_goes_on() {
    let project = Project::new();
    let run = project.xtask(&check(&PROJECT)).exits(0);
    for name in PROJECT {
        assert!(
            run.out.contains(&format!("{name}: ")),
            "{name}: {}",
            run.out
        );
    }
    project.replace("checkout/mlx.toml", "budget-lines = 60", "budget-lines = 1");
    let vendored = format!("checkout/vendor/mlx/{FILE}");
    project.replace(&vendored, "int line_5 ", "long line_5 ");
    let run = project.xtask(&check(&PROJECT)).fails_with(&[
        "error: budget: the patches change 2 upstream lines",
        "docs/decisions",
        "error: tree: vendor/mlx was edited by hand: 1 changed: src/k.cpp",
        "`cargo xtask apply-overlay --discard-edits`",
    ]);
    assert_eq!(run.err.matches("error: ").count(), 2, "{}", run.err);
    assert!(run.out.contains("lock: mlx.lock names tree"), "{}", run.out);
    project.xtask(&check(&["lock", "series"])).exits(0);
}

#[test]
fn json_holds_what_was_found_and_every_fault() {
    let project = Project::new();
    project.replace("checkout/mlx.toml", "budget-lines = 60", "budget-lines = 1");
    let run = project
        .xtask(&check(&["lock", "budget", "--json"]))
        .exits(1);
    assert_eq!(run.err, "");
    let report: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(report["format"], 1);
    let [lock, budget] = &report["checks"].as_array().unwrap()[..] else {
        panic!("{report}")
    };
    assert_eq!(lock["check"], "lock");
    assert_eq!(lock["faults"], serde_json::json!([]));
    assert!(
        lock["found"]
            .as_str()
            .unwrap()
            .starts_with("mlx.lock names tree")
    );
    assert_eq!(budget["check"], "budget");
    assert_eq!(budget["found"], "");
    let fault = budget["faults"][0].as_str().unwrap();
    assert!(
        fault.contains("budget in mlx.toml is 1; make them smaller"),
        "{fault}"
    );
}

/// Scripts may still use `verify`.
#[test]
fn the_earlier_name_and_its_flags_still_work() {
    let project = Project::new();
    let run = project.xtask(&["verify", "--lock", "--budget"]).exits(0);
    for name in ["lock", "budget", "tree"] {
        assert!(
            run.out.contains(&format!("{name}: ")),
            "{name}: {}",
            run.out
        );
    }
    assert_eq!(run.out.lines().count(), 3, "{}", run.out);
    fs_err::remove_dir_all(project.path("checkout/vendor/mlx")).unwrap();
    project
        .xtask(&["verify", "--lock"])
        .fails_with(&["vendor/mlx is absent", "run `cargo xtask apply-overlay`"]);
    // Both parts of the closure check, for a tree without kernels.
    project
        .xtask(&["verify", "--closure", "--tree", "elsewhere"])
        .fails_with(&[
            "error: closure-aot: ",
            "error: closure-jit: ",
            "elsewhere does not contain MLX",
        ]);
}

#[test]
fn what_is_watched_is_accepted_by_a_person() {
    let project = Project::new();
    let manifest = project.read("checkout/mlx.toml");
    let watch = format!("[[watch]]\nfile = \"{FILE}\"\nmacros = [\"LIMIT\"]\n");
    project.write("checkout/mlx.toml", &(manifest + &watch));
    let accept = "`cargo xtask check watch --accept`";
    project
        .xtask(&check(&["watch"]))
        .fails_with(&["patches/watched.toml is missing", accept]);
    project.xtask(&["check", "watch", "--accept"]).exits(0);
    project.xtask(&check(&["watch"])).exits(0);
    let text = project.read("checkout/patches/watched.toml");
    let known = format!("{text}LIMIT = \"1\"\n");
    project.write("checkout/patches/watched.toml", &known);
    project
        .xtask(&check(&["watch"]))
        .fails_with(&["LIMIT differs from MLX 1.0.0", accept]);
}

/// The engine reports facts; the remedy is added in one place, for every command.
#[test]
fn a_lock_that_does_not_read_says_how_to_get_another() {
    let project = Project::new();
    project.write("checkout/mlx.lock", "<<<<<<< HEAD\n");
    for command in [&["status"][..], &["check", "lock"], &["apply-overlay"]] {
        let run = project.xtask(command).fails_with(&["mlx.lock:1: "]);
        let remedy = "delete it and run `cargo xtask apply-overlay --update-lock`";
        assert_eq!(run.err.matches(remedy).count(), 1, "{}", run.err);
    }
}
