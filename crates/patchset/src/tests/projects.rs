//! Finding a project writes nothing; opening it shows it complete, and no other run changes it meanwhile.

use std::sync::mpsc;

use fs_err as fs;

use super::fixture::Fixture;
use crate::apply::{Options, apply};
use crate::check::{Check, check};
use crate::progress::{Event, QUIET};
use crate::project::{Parts, Project};
use crate::state::{State, status};
use crate::tree::Listing;
use crate::{Error, Result, Workspace};

/// Leaves the same files as a run that was killed after it decided to raise the budget.
fn decide(fixture: &Fixture) {
    let journal = fixture.workspace.vendor().join(".journal");
    fs::create_dir(&journal).unwrap();
    let text = fs::read_to_string(fixture.workspace.manifest_path()).unwrap();
    let text = text.replace("budget-lines = 60", "budget-lines = 61");
    fs::write(journal.join("0"), text).unwrap();
    fs::write(journal.join("list.toml"), "[write]\n\"mlx.toml\" = \"0\"\n").unwrap();
}

fn budget(project: &Project) -> usize {
    project.manifest.overlay.budget_lines
}

#[test]
fn finding_a_project_writes_nothing_and_opening_it_finishes_what_was_decided() {
    let fixture = Fixture::new();
    decide(&fixture);
    let root = fixture.workspace.root();
    let before = Listing::of_dir(root).unwrap();
    let found = Workspace::around(&root.join("patches/files")).unwrap();
    assert_eq!(found.root(), root);
    assert_eq!(Listing::of_dir(root).unwrap(), before);
    assert!(matches!(
        Workspace::around(fixture.root()),
        Err(Error::NoWorkspace(_))
    ));

    assert_eq!(budget(&Project::open(&found, QUIET).unwrap()), 61);
    assert!(!found.vendor().join(".journal").exists());
}

#[test]
fn every_command_finishes_what_was_decided() {
    type Run = fn(&Workspace) -> Result<()>;
    let runs: [Run; 4] = [
        |workspace| status(workspace, QUIET).map(drop),
        |workspace| {
            let faults = check(workspace, Check::Budget, None, QUIET).faults;
            faults.into_iter().next().map_or(Ok(()), Err)
        },
        |workspace| {
            let options = Options {
                offline: true,
                ..Options::default()
            };
            apply(workspace, &options, QUIET).map(drop)
        },
        |workspace| crate::project::hold(workspace, QUIET).map(drop),
    ];
    for run in runs {
        let fixture = Fixture::new();
        decide(&fixture);
        run(&fixture.workspace).unwrap();
        assert_eq!(fixture.manifest().overlay.budget_lines, 61);
        assert!(!fixture.workspace.vendor().join(".journal").exists());
    }
}

#[test]
fn an_open_project_is_shared_by_readers_and_holds_off_changes() {
    let fixture = Fixture::new();
    fixture.apply().unwrap();
    let one = Project::open(&fixture.workspace, QUIET).unwrap();
    let other = Project::open(&fixture.workspace, QUIET).unwrap();
    drop(one);
    let (waiting, is_waiting) = mpsc::channel();
    std::thread::scope(|scope| {
        let fixture = &fixture;
        let run = scope.spawn(move || {
            let options = Options {
                offline: true,
                target: crate::apply::Target::Pristine,
                ..Options::default()
            };
            let progress = |event: Event<'_>| {
                if let Event::Waiting(for_whom) = event {
                    let this = format!("(process {}, since ", std::process::id());
                    assert!(for_whom.contains(&this), "{for_whom}");
                    waiting.send(()).unwrap();
                }
            };
            apply(&fixture.workspace, &options, &progress).unwrap();
        });
        is_waiting.recv().unwrap();
        assert_eq!(fixture.state(), State::Applied);
        drop(other);
        run.join().unwrap();
    });
    assert_eq!(fixture.state(), State::Pristine);
}

#[test]
fn each_part_is_read_whatever_the_others_are() {
    let fixture = Fixture::new();
    fs::write(fixture.workspace.manifest_path(), "x").unwrap();
    let parts = Parts::read(&fixture.workspace);
    assert!(parts.manifest.is_err() && parts.series.is_ok() && parts.lock.is_ok());
    assert!(Project::open(&fixture.workspace, QUIET).is_err());

    let fixture = Fixture::new();
    fs::remove_file(fixture.workspace.lock_path()).unwrap();
    let project = Project::open(&fixture.workspace, QUIET).unwrap();
    assert!(matches!(project.lock(), Err(Error::LockMissing)));
}
