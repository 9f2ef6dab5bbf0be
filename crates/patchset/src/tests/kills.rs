//! A killed run leaves the old tree or the new one, and the next run succeeds.
//!
//! The killed process is this test binary again, running only [`CHILD`].

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};

use git2::Oid;

use super::fixture::Fixture;
use crate::Workspace;
use crate::apply::{Options, Target, apply};
use crate::fetch;
use crate::place::step;
use crate::place::vendor::{self, Vendor};
use crate::progress::QUIET;
use crate::state::State;
use crate::tree::Listing;

/// The folder in which a child process applies or reverts. If set, the test does only that.
const FOLDER: &str = "OVERLAY_TEST_CHECKOUT";
const CHILD: &str = "tests::kills::killed_while_reverting";
const REVERT: &str = "OVERLAY_TEST_REVERT";
const UPDATE: &str = "OVERLAY_TEST_UPDATE_LOCK";
const FETCH: &str = "OVERLAY_TEST_FETCH_FROM";
const SIGKILL: i32 = 9;

/// The actions of a child process.
fn apply_or_revert(folder: String) {
    if let Ok(source) = std::env::var(FETCH) {
        let options = fetch::Options {
            source: Some(source.into()),
            offline: true,
            ..fetch::Options::default()
        };
        fetch::fetch(&Workspace::at(folder), &options, QUIET).unwrap();
        return;
    }
    let target = if std::env::var_os(REVERT).is_some() {
        Target::Pristine
    } else {
        Target::Applied
    };
    let options = Options {
        target,
        offline: true,
        update_lock: std::env::var_os(UPDATE).is_some(),
        ..Options::default()
    };
    apply(&Workspace::at(folder), &options, QUIET).unwrap();
}

/// This test binary as a separate process that runs only [`CHILD`].
pub(crate) fn child_command(workspace: &Workspace, target: Target) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", CHILD, "--nocapture"])
        .env(FOLDER, workspace.root());
    command.stdout(std::process::Stdio::null());
    if target == Target::Pristine {
        command.env(REVERT, "1");
    }
    command
}

fn run_child(fixture: &Fixture, target: Target, kill_at: u64, exchange: bool) -> ExitStatus {
    let mut command = child_command(&fixture.workspace, target);
    command.env(step::VARIABLE, kill_at.to_string());
    if !exchange {
        command.env(step::NO_EXCHANGE, "1");
    }
    command.status().unwrap()
}

/// The tree in `vendor/mlx`, if there is one.
pub(crate) fn tree_in_place(workspace: &Workspace) -> Option<Oid> {
    workspace.tree().exists().then(|| {
        Listing::of_dir(&workspace.tree())
            .unwrap()
            .tree_id()
            .unwrap()
    })
}

/// Kills a run at every step until one succeeds; returns the number of steps.
fn kill_at_every_step(start: Option<Target>, target: Target, exchange: bool) -> u64 {
    let fixture = Fixture::new();
    match start {
        Some(Target::Applied) => drop(fixture.apply().unwrap()),
        Some(Target::Pristine) => drop(fixture.revert().unwrap()),
        None => {}
    }
    let old = tree_in_place(&fixture.workspace);
    let lock = fixture.lock();
    let new = if target == Target::Applied {
        lock.final_tree
    } else {
        lock.base_tree
    };
    for step in 1.. {
        let status = run_child(&fixture, target, step, exchange);
        let found = tree_in_place(&fixture.workspace);
        if status.success() {
            assert_eq!(found, Some(new));
            return step - 1;
        }
        assert_eq!(status.signal(), Some(SIGKILL), "step {step}");
        if exchange || found.is_some() {
            assert!(
                found == old || found == Some(new),
                "step {step}: found {found:?}"
            );
        } else {
            // Without an exchange the place may be empty, but the old tree is complete, and any run puts it back.
            drop(Vendor::lock(&fixture.workspace, QUIET).unwrap());
            assert_eq!(tree_in_place(&fixture.workspace), old, "step {step}");
        }
        // No state is confused with another, whatever is next to the tree.
        let state = fixture.state();
        assert!(
            matches!(state, State::Absent | State::Pristine | State::Applied),
            "step {step}: {state}"
        );
        // The next run succeeds, and the one after it starts from the old tree again.
        reset(&fixture, start);
        assert_eq!(tree_in_place(&fixture.workspace), old, "step {step}");
    }
    unreachable!()
}

fn reset(fixture: &Fixture, start: Option<Target>) {
    match start {
        Some(Target::Applied) => drop(fixture.apply().unwrap()),
        Some(Target::Pristine) => drop(fixture.revert().unwrap()),
        None => {
            fixture.apply().unwrap();
            fs_err::remove_dir_all(fixture.workspace.vendor()).unwrap();
        }
    }
    let left: Vec<_> = match fixture.workspace.vendor().read_dir_utf8() {
        Ok(entries) => entries
            .map(|entry| entry.unwrap().file_name().to_owned())
            .collect(),
        Err(_) => Vec::new(),
    };
    assert!(
        left.iter()
            .all(|name| ["mlx", ".mlx-lock", ".mlx-placed"].contains(&name.as_str())),
        "left: {left:?}"
    );
    // The listing of a tree that was never placed may stay until the next change.
    assert!(vendor::placed(&fixture.workspace).len() <= 2);
}

#[test]
fn killed_while_applying_for_the_first_time() {
    let steps = kill_at_every_step(None, Target::Applied, true);
    assert!(
        steps > 15,
        "only {steps} steps: does every call announce itself?"
    );
}

#[test]
fn killed_while_applying_over_the_pristine_tree() {
    let steps = kill_at_every_step(Some(Target::Pristine), Target::Applied, true);
    assert!(
        steps > 20,
        "only {steps} steps: does every call announce itself?"
    );
}

#[test]
fn killed_while_reverting() {
    if let Ok(folder) = std::env::var(FOLDER) {
        return apply_or_revert(folder);
    }
    kill_at_every_step(Some(Target::Applied), Target::Pristine, true);
}

#[test]
fn killed_where_folders_cannot_be_exchanged() {
    kill_at_every_step(Some(Target::Pristine), Target::Applied, false);
}

/// The lock and its published copy are both old or both new.
#[test]
fn killed_while_writing_the_lock() {
    let fixture = Fixture::new();
    let copy = fixture
        .workspace
        .root()
        .join("crates/mlx-overlay-sys/mlx.lock");
    fs_err::create_dir_all(copy.parent().unwrap()).unwrap();
    fixture.apply().unwrap();
    let old = fs_err::read_to_string(fixture.workspace.lock_path()).unwrap();
    let text = fs_err::read_to_string(fixture.patch_file("two")).unwrap();
    fs_err::write(
        fixture.patch_file("two"),
        text.replace("Why: to test", "Why: to test more"),
    )
    .unwrap();
    let (mut undone, mut done) = (0, 0);
    for step in 1.. {
        fs_err::write(fixture.workspace.lock_path(), &old).unwrap();
        fs_err::write(&copy, &old).unwrap();
        let mut command = child_command(&fixture.workspace, Target::Applied);
        command
            .env(step::VARIABLE, step.to_string())
            .env(UPDATE, "1");
        let status = command.status().unwrap();
        assert!(
            status.success() || status.signal() == Some(SIGKILL),
            "step {step}: {status}"
        );
        drop(Vendor::lock(&fixture.workspace, QUIET).unwrap());
        let found = fs_err::read_to_string(fixture.workspace.lock_path()).unwrap();
        assert_eq!(fs_err::read_to_string(&copy).unwrap(), found, "step {step}");
        if found == old {
            undone += 1;
        } else {
            done += 1;
        }
        let mut beside = fixture.workspace.root().read_dir_utf8().unwrap();
        assert!(beside.all(|entry| !entry.unwrap().file_name().starts_with('.')));
        if status.success() {
            break;
        }
    }
    assert!(undone > 5 && done > 2, "{undone} undone, {done} done");
}

#[test]
fn killed_while_fetching() {
    let fixture = Fixture::new();
    for step in 1.. {
        let cache = fixture.workspace.cache();
        fs_err::remove_dir_all(&cache).unwrap();
        let mut command = child_command(&fixture.workspace, Target::Applied);
        command
            .env(step::VARIABLE, step.to_string())
            .env(FETCH, fixture.upstream());
        let status = command.status().unwrap();
        // The next run has the tree or fetches it, and leaves nothing next to it.
        let mut command = child_command(&fixture.workspace, Target::Applied);
        command.env(FETCH, fixture.upstream());
        assert!(command.status().unwrap().success(), "step {step}");
        let left = cache.read_dir_utf8().unwrap();
        let left: Vec<_> = left
            .map(|entry| entry.unwrap().file_name().to_owned())
            .collect();
        assert_eq!(left, ["mlx.git"], "step {step}");
        let labels = cache.join("mlx.git/sources").read_dir_utf8().unwrap();
        assert_eq!(labels.count(), 1, "step {step}");
        if status.success() {
            assert!(step > 4, "only {step} steps");
            break;
        }
    }
}
