//! Two runs at once, a read-only and a full disk.

use std::process::Command;
use std::sync::mpsc;

use camino::Utf8Path;
use fs_err as fs;

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
        // The sender goes with the run: one that does not wait ends the test instead of blocking it.
        let run = scope.spawn(move || {
            let progress = |event: Event<'_>| {
                if matches!(event, Event::Waiting) {
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

/// A file system of its own, taken down at the end; `None` where this process may not mount.
struct Mount(tempfile::TempDir);

impl Mount {
    fn tmpfs(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(folder.path())
            .output()
            .is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("SKIPPED: this process may not mount a tmpfs; run the test as root");
        }
        mounted.then_some(Self(folder))
    }

    fn path(&self) -> &Utf8Path {
        Utf8Path::from_path(self.0.path()).unwrap()
    }

    fn remount(&self, option: &str) {
        let remounted = Command::new("mount")
            .args(["-o", &format!("remount,{option}")])
            .arg(self.0.path())
            .status();
        assert!(remounted.unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.0.path())
            .status();
    }
}

#[test]
fn a_full_disk_leaves_the_old_tree() {
    let Some(mount) = Mount::tmpfs("4m") else {
        return;
    };
    let fixture = Fixture::in_folder(tempfile::tempdir_in(mount.path()).unwrap());
    fixture.revert().unwrap();
    // Fill it, then give back a little more each time: the run fails at another place each time, until it fits.
    let ballast = mount.path().join("ballast");
    let fill = |free: usize| {
        let _ = fs::remove_file(&ballast);
        let mut bytes = vec![1; 4 << 20];
        while fs::write(&ballast, &bytes).is_err() {
            bytes.truncate(bytes.len() - 4096);
        }
        bytes.truncate(bytes.len().saturating_sub(free));
        fs::write(&ballast, &bytes).unwrap();
    };
    let mut failures = 0;
    for free in (0..).step_by(4096) {
        fill(free);
        match fixture.apply() {
            Ok(_) => break,
            Err(error) => {
                failures += 1;
                let text = error.to_string();
                assert!(
                    text.contains("No space left") || text.contains("git objects"),
                    "{text}"
                );
                assert_eq!(fixture.state(), State::Pristine, "with {free} bytes free");
                assert!(
                    !fixture.workspace.vendor().join("mlx.next").exists(),
                    "nothing half-written stays"
                );
            }
        }
    }
    assert!(failures >= 2, "the disk was never full");
    assert_eq!(fixture.state(), State::Applied);
}

#[test]
fn a_read_only_disk_is_an_error_and_status_still_works() {
    let Some(mount) = Mount::tmpfs("8m") else {
        return;
    };
    let fixture = Fixture::in_folder(tempfile::tempdir_in(mount.path()).unwrap());
    fixture.revert().unwrap();
    mount.remount("ro");
    let error = fixture.apply().unwrap_err().to_string();
    assert!(
        error.contains("Read-only file system") && error.contains("vendor"),
        "{error}"
    );
    assert_eq!(
        status(&fixture.workspace, QUIET).unwrap().0,
        State::Pristine
    );
    mount.remount("rw");
    fixture.apply().unwrap();
}
