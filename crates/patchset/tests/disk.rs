//! Cases that only root can set up: a full disk and a read-only disk, which are separate file systems, and a repository
//! of another user. Tests that this process cannot set up are listed as ignored.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::io;
use std::process::{Command, Output};

use camino::Utf8Path;
use fs_err as fs;
use libtest_mimic::{Arguments, Trial};
use patchset::apply::{self, Outcome, Target};
use patchset::bump;
use patchset::progress::QUIET;
use patchset::state::{State, status};
use patchset::tree::Snapshot;
use support::{Project, Upstream, WIDEN};

fn main() {
    let mut arguments = Arguments::from_args();
    let missing = Mount::tmpfs("1m").err();
    if let Some(why) = &missing {
        eprintln!(
            "tests of disks are ignored: this process may not mount a tmpfs, root may: {why}"
        );
    }
    let owned = own_by_another(Utf8Path::from_path(tempfile::tempdir().unwrap().path()).unwrap());
    let trial = |name: &str, test: fn(), ignored: bool| {
        let test = move || {
            test();
            Ok(())
        };
        Trial::test(name, test).with_ignored_flag(ignored)
    };
    let tests = vec![
        trial(
            "a_full_disk_leaves_the_old_tree",
            a_full_disk_leaves_the_old_tree,
            missing.is_some(),
        ),
        trial(
            "a_read_only_disk_is_an_error_and_status_still_works",
            a_read_only_disk_is_an_error_and_status_still_works,
            missing.is_some(),
        ),
        trial(
            "a_repository_of_another_user_is_no_folder_of_files",
            a_repository_of_another_user_is_no_folder_of_files,
            owned.is_err(),
        ),
    ];
    // Tests that cannot run here stay ignored even when the long tests are requested.
    arguments.include_ignored &= missing.is_none() && owned.is_ok();
    libtest_mimic::run(&arguments, tests).exit();
}

#[allow(
    clippy::disallowed_methods,
    reason = "the engine's wrapper is not public"
)]
fn run(program: &str, args: &[&str], folder: &Utf8Path) -> io::Result<Output> {
    Command::new(program).args(args).arg(folder).output()
}

/// A separate file system, unmounted at the end.
struct Mount(tempfile::TempDir);

impl Mount {
    fn tmpfs(size: &str) -> Result<Self, String> {
        let mount = Self(tempfile::tempdir().unwrap());
        let size = format!("size={size}");
        let args = ["-t", "tmpfs", "-o", &size, "tmpfs"];
        let output = run("mount", &args, mount.path()).map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(mount)
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(said.trim().to_owned())
        }
    }

    fn path(&self) -> &Utf8Path {
        Utf8Path::from_path(self.0.path()).unwrap()
    }

    fn remount(&self, option: &str) {
        let option = format!("remount,{option}");
        let output = run("mount", &["-o", &option], self.path()).unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = run("umount", &["--lazy"], self.path());
    }
}

/// On that disk, with the pristine tree in place.
fn reverted(mount: &Mount) -> Project {
    let folder = tempfile::tempdir_in(mount.path()).unwrap();
    let project = Project::in_folder(folder, &Upstream::new(), &[WIDEN]);
    apply(&project, Target::Pristine).unwrap();
    project
}

fn apply(project: &Project, target: Target) -> patchset::Result<Outcome> {
    let options = apply::Options {
        target,
        offline: true,
        ..apply::Options::default()
    };
    apply::apply(&project.workspace, &options, QUIET)
}

fn state(project: &Project) -> State {
    status(&project.workspace, QUIET).unwrap().0
}

/// Gives a folder to another user.
fn own_by_another(folder: &Utf8Path) -> io::Result<()> {
    const SOMEBODY: u32 = 54_321;
    std::os::unix::fs::chown(folder, Some(SOMEBODY), None)
}

/// Its work tree has the files of the requested tag, and one more.
fn a_repository_of_another_user_is_no_folder_of_files() {
    let upstream = Upstream::new();
    let commit = upstream.release("1.1.0", &[]);
    let project = Project::new(&upstream, &[WIDEN]);
    let scratch = tempfile::tempdir().unwrap();
    let folder = Utf8Path::from_path(scratch.path()).unwrap();
    let files = Snapshot::of_tree(&upstream.repo, upstream.tree(commit)).unwrap();
    patchset::place::write_tree(folder, &files).unwrap();
    fs::write(folder.join("untracked"), "").unwrap();
    git2::Repository::init(folder).unwrap();
    for path in [folder.to_owned(), folder.join(".git")] {
        own_by_another(&path).unwrap();
    }
    let options = bump::Options {
        wanted: "1.1.0".to_owned(),
        source: Some(folder.to_string()),
        ..bump::Options::default()
    };
    let before = fs::read(project.workspace.manifest_path()).unwrap();
    let Err(error) = bump::start(&project.workspace, &options, QUIET) else {
        panic!("the work tree was pinned")
    };
    let text = error.to_string();
    assert!(
        text.contains("cannot be opened") && text.contains("not owned by current user"),
        "{text}"
    );
    assert_eq!(fs::read(project.workspace.manifest_path()).unwrap(), before);
}

fn a_full_disk_leaves_the_old_tree() {
    let mount = Mount::tmpfs("4m").unwrap();
    let project = reverted(&mount);
    // Fill the disk, then free a little more each time: the run fails at a different place each time, until it fits.
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
        let Err(error) = apply(&project, Target::Applied) else {
            break;
        };
        failures += 1;
        let text = error.to_string();
        assert!(
            text.contains("No space left") || text.contains("git objects"),
            "{text}"
        );
        assert_eq!(state(&project), State::Pristine, "with {free} bytes free");
        assert!(
            !project.workspace.vendor().join("mlx.next").exists(),
            "nothing half-written stays"
        );
    }
    assert!(failures >= 2, "the disk was never full");
    assert_eq!(state(&project), State::Applied);
}

fn a_read_only_disk_is_an_error_and_status_still_works() {
    let mount = Mount::tmpfs("8m").unwrap();
    let project = reverted(&mount);
    mount.remount("ro");
    let error = apply(&project, Target::Applied).unwrap_err().to_string();
    assert!(
        error.contains("Read-only file system") && error.contains("vendor"),
        "{error}"
    );
    assert_eq!(state(&project), State::Pristine);
    mount.remount("rw");
    apply(&project, Target::Applied).unwrap();
}
