//! Two runs at once. For disk errors see `tests/disk.rs`.

use std::sync::mpsc;

use super::fixture::Fixture;
use super::kills::{child_command, tree_in_place};
use crate::apply::{Options, Target, apply};
use crate::place::vendor::Vendor;
use crate::progress::{Event, QUIET};
use crate::state::{State, status};

#[test]
fn a_second_run_waits_and_says_so() {
    let fixture = Fixture::new();
    let vendor = Vendor::lock(&fixture.workspace, QUIET).unwrap();
    let (waiting, is_waiting) = mpsc::channel();
    let workspace = &fixture.workspace;
    std::thread::scope(|scope| {
        // The sender is dropped with the run: a run that does not wait ends the test instead of blocking it.
        let run = scope.spawn(move || {
            let progress = |event: Event<'_>| {
                if let Event::Waiting(for_whom) = event {
                    let this = format!("(process {}, since ", std::process::id());
                    assert!(for_whom.contains(&this), "{for_whom}");
                    waiting.send(()).unwrap();
                }
            };
            let options = Options {
                offline: true,
                ..Options::default()
            };
            apply(workspace, &options, &progress).unwrap();
        });
        is_waiting.recv().unwrap();
        assert_eq!(
            tree_in_place(workspace),
            None,
            "it must not go on without the lock"
        );
        drop(vendor);
        run.join().unwrap();
    });
    assert_eq!(fixture.state(), State::Applied);
}

#[test]
fn many_runs_at_once_leave_one_whole_tree() {
    let fixture = Fixture::new();
    let lock = fixture.lock();
    for _ in 0..4 {
        let targets = [
            Target::Applied,
            Target::Pristine,
            Target::Applied,
            Target::Pristine,
        ];
        let children: Vec<_> = targets
            .iter()
            .map(|target| child_command(&fixture.workspace, *target).spawn().unwrap())
            .collect();
        // A reader in between sees one tree or the other.
        let (state, _) = status(&fixture.workspace, QUIET).unwrap();
        assert!(
            matches!(state, State::Absent | State::Applied | State::Pristine),
            "{state}"
        );
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        let found = tree_in_place(&fixture.workspace).unwrap();
        assert!([lock.base_tree, lock.final_tree].contains(&found));
    }
}
