//! A bump killed with SIGKILL at any moment: the project is the old one or the new one, and the next run succeeds.
//! `src/tests/bumps.rs` kills at each of the engine's own steps; this test kills at moments in time, so also inside
//! git, libgit2 and calls that only read.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fs_err as fs;
use patchset::bump::{self, Options, Outcome};
use patchset::progress::QUIET;
use patchset::{Project as Opened, Workspace};
use rustix::process::{Pid, Signal, kill_process_group};
use support::{Change, Project, Upstream, WIDEN, kernel};

/// The folder in which a child process bumps. If set, the test does only that.
const FOLDER: &str = "OVERLAY_TEST_BUMP";
const CHILD: &str = "killed_at_any_moment_it_is_the_old_project_or_the_new_one";
const ONLY_RECOVER: &str = "OVERLAY_TEST_RECOVER";

/// The number of kills, spread evenly over the time that a bump takes.
const KILLS: u32 = 30;

type Files = Vec<(String, Vec<u8>)>;

fn options() -> Options {
    Options {
        wanted: "1.1.0".to_owned(),
        ..Options::default()
    }
}

/// The child's actions: first those of any `cargo xtask` command, then it moves the pin.
fn bump_in(folder: OsString) {
    std::env::set_current_dir(folder).unwrap();
    let workspace = Workspace::discover().unwrap();
    drop(Opened::open(&workspace, QUIET).unwrap());
    if std::env::var_os(ONLY_RECOVER).is_none() {
        bump::start(&workspace, &options(), QUIET).unwrap();
    }
}

/// This test binary as a separate process that runs only [`CHILD`].
fn spawn(project: &Project, only_recover: bool) -> Child {
    #[allow(clippy::disallowed_methods, reason = "it is to be killed")]
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", CHILD])
        .env(FOLDER, project.root())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    if only_recover {
        command.env(ONLY_RECOVER, "1");
    }
    command.spawn().unwrap()
}

/// Resets the project to `files`, with nothing fetched if `fresh`.
fn restore(project: &Project, files: &Files, fresh: bool) {
    for (path, _) in project.files() {
        fs::remove_file(project.root().join(path)).unwrap();
    }
    for (path, bytes) in files {
        fs::write(project.root().join(path), bytes).unwrap();
    }
    if fresh {
        fs::remove_dir_all(project.workspace.cache()).unwrap();
    }
}

#[test]
fn killed_at_any_moment_it_is_the_old_project_or_the_new_one() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return bump_in(folder);
    }
    let upstream = Upstream::new();
    let text = kernel().replace("int line_5 = 5;", "int line_5 = 5;\nint new_1;");
    upstream.release("1.1.0", &[("src/k.cpp", &text)]);
    let added = Change {
        name: "added",
        edits: &[("src/k.cpp", "int line_35 = 35;", "long line_35 = 35;")],
        adds: &[("src/new.h", "int n;\n")],
    };
    let project = Project::new(&upstream, &[WIDEN, added]);
    let old = project.files();

    let start = Instant::now();
    assert!(spawn(&project, false).wait().unwrap().success());
    let whole = start.elapsed();
    let new = project.files();
    assert_ne!(old, new);

    let (mut undone, mut done) = (0, 0);
    for kill in 0..KILLS {
        restore(&project, &old, kill % 3 == 0);
        let mut child = spawn(&project, false);
        std::thread::sleep(whole * kill / KILLS + Duration::from_micros(u64::from(kill) * 37));
        if kill % 2 == 0 {
            child.kill().unwrap();
        } else {
            // With the git that it may have started.
            let group = Pid::from_raw(child.id().cast_signed()).unwrap();
            kill_process_group(group, Signal::KILL).unwrap();
        }
        child.wait().unwrap();
        // The next command, whatever it is, finishes what was decided.
        assert!(spawn(&project, true).wait().unwrap().success());
        let found = project.files();
        if found == new {
            done += 1;
            continue;
        }
        assert!(
            found == old,
            "kill {kill}: neither the old project nor the new one"
        );
        undone += 1;
        let (_, outcome) = bump::start(&project.workspace, &options(), QUIET).unwrap();
        assert!(matches!(outcome, Outcome::Done));
        assert!(
            project.files() == new,
            "kill {kill}: the next run had another result"
        );
    }
    eprintln!("{undone} kills left the old project, {done} the new one");
    assert!(undone > 0, "no kill came in time");
}
