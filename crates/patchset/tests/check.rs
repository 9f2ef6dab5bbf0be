//! Checks by name: each finds its own fault and no other.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use fs_err as fs;
use patchset::bump;
use patchset::check::{Check, accept_watched, check};
use patchset::progress::QUIET;
use support::{Project, Upstream, WIDEN, kernel};

/// The errors of a check.
fn faults(project: &Project, which: Check) -> Vec<String> {
    let found = check(&project.workspace, which, None, QUIET);
    assert_eq!(found.found.is_empty(), !found.faults.is_empty());
    found.faults.iter().map(ToString::to_string).collect()
}

const ALL: [Check; 6] = [
    Check::Series,
    Check::Lock,
    Check::Budget,
    Check::Lint,
    Check::Watch,
    Check::Tree,
];

fn replace(project: &Project, path: &str, from: &str, to: &str) {
    let text = project.read(path);
    assert!(text.contains(from), "{path} has no {from:?}");
    fs::write(project.root().join(path), text.replacen(from, to, 1)).unwrap();
}

#[test]
fn each_check_finds_its_own_fault() {
    let upstream = Upstream::new();
    type Spoil = fn(&Project);
    let cases: [(Spoil, &[Check], &str); 6] = [
        (|_| {}, &[], ""),
        (
            |project| replace(project, "mlx.toml", "budget-lines = 80", "budget-lines = 1"),
            &[Check::Budget],
            "the patches change 2 upstream lines, but the budget in mlx.toml is 1",
        ),
        // The tree's check needs a lock to compare with.
        (
            |project| replace(project, "patches/widen.patch", "because", "since"),
            &[Check::Lock, Check::Tree],
            "mlx.lock does not match mlx.toml and patches/: patches/widen.patch has changed",
        ),
        (
            |project| {
                let lock = project.read("mlx.lock");
                let (_, id) = lock.split_once("final_tree = \"").unwrap();
                replace(project, "mlx.lock", &id[..40], &"0".repeat(40));
            },
            &[Check::Lock, Check::Tree],
            "",
        ),
        (
            |project| replace(project, "vendor/mlx/src/other.cpp", "other", "another"),
            &[Check::Tree],
            "vendor/mlx was edited by hand: 1 changed: src/other.cpp",
        ),
        (
            |project| replace(project, "patches/watched.toml", "dot = \"", "dot = \"0"),
            &[Check::Watch],
            "src/k.cpp: dot differs from MLX 1.0.0",
        ),
    ];
    for (number, (spoil, failing, text)) in cases.into_iter().enumerate() {
        let project = Project::new(&upstream, &[WIDEN]);
        accept_watched(&project.workspace, QUIET).unwrap();
        spoil(&project);
        for which in ALL {
            let found = faults(&project, which);
            assert_eq!(
                !found.is_empty(),
                failing.contains(&which),
                "case {number}, {which:?}: {found:?}"
            );
            assert!(
                found
                    .iter()
                    .all(|fault| fault.starts_with(text) || text.is_empty()),
                "{found:?}"
            );
        }
    }
}

/// A bump reports what changed; only a person can confirm that the change was examined.
#[test]
fn a_watched_definition_that_a_bump_brought_fails_until_it_is_accepted() {
    let upstream = Upstream::new();
    let text = kernel().replace("return a * b;", "return b * a;");
    upstream.release("1.1.0", &[("src/k.cpp", &text)]);
    let project = Project::new(&upstream, &[WIDEN]);
    assert_eq!(
        faults(&project, Check::Watch),
        ["patches/watched.toml is missing, but mlx.toml watches upstream definitions"]
    );
    accept_watched(&project.workspace, QUIET).unwrap();
    replace(
        &project,
        "mlx.toml",
        "functions = [\"dot\"]",
        "functions = [\"dot\"]\nfollowed-by = \"src/twin.h\"",
    );
    let options = bump::Options {
        wanted: "1.1.0".to_owned(),
        ..bump::Options::default()
    };
    bump::start(&project.workspace, &options, QUIET).unwrap();
    assert_eq!(
        faults(&project, Check::Watch),
        ["src/k.cpp: dot differs from MLX 1.0.0, which src/twin.h follows"]
    );
    accept_watched(&project.workspace, QUIET).unwrap();
    assert_eq!(faults(&project, Check::Watch), Vec::<String>::new());
    // A removed definition is a change too.
    replace(&project, "mlx.toml", "[\"dot\"]", "[\"dot\", \"gone\"]");
    assert_eq!(faults(&project, Check::Watch), Vec::<String>::new());
    replace(
        &project,
        "patches/watched.toml",
        "dot = ",
        "gone = \"1\"\ndot = ",
    );
    assert_eq!(
        faults(&project, Check::Watch),
        ["src/k.cpp: gone differs from MLX 1.1.0, which src/twin.h follows"]
    );
}
