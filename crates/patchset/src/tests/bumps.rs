//! A bump is killed before each file-system call in turn: the project is the old one or the new one.

use std::collections::BTreeMap;
use std::process::Command;

use camino::Utf8PathBuf;
use fs_err as fs;

use super::fixture::{Fixture, edit, upstream, write_snapshot};
use crate::place::journal;
use crate::place::step;
use crate::place::vendor::Vendor;
use crate::progress::QUIET;
use crate::tree::{File, Mode};
use crate::work::bump::{self, Options, Outcome};
use crate::{Error, Workspace};

/// The folder in which a child process bumps. It runs this one test, which then does that and nothing else.
const FOLDER: &str = "OVERLAY_TEST_BUMP";
const CHILD: &str = "tests::bumps::killed_at_any_step_of_a_bump_that_goes_through";

/// Every file that a bump may change.
type Project = BTreeMap<String, Vec<u8>>;

/// The fixture, and beside it the folder of upstream's next version.
struct Moved {
    fixture: Fixture,
    options: Options,
}

impl Moved {
    /// Upstream's next version, with this edit of `a.txt`.
    fn new(from: &str, to: &str) -> Self {
        let fixture = Fixture::new();
        let mut next = upstream();
        edit(&mut next, "a.txt", from, to);
        let version = "#define MLX_VERSION_MAJOR 1\n#define MLX_VERSION_MINOR 1\n#define MLX_VERSION_PATCH 0\n";
        let file = File {
            mode: Mode::Regular,
            bytes: version.into(),
        };
        next.0.insert("mlx/version.h".to_owned(), file);
        write_snapshot(&fixture.root().join("next"), &next);
        let options = options(&fixture.workspace);
        Self { fixture, options }
    }

    fn project(&self) -> Project {
        let root = self.fixture.workspace.root();
        let walk = walkdir::WalkDir::new(root).into_iter();
        let kept = walk.filter_entry(|entry| {
            entry.depth() != 1 || !matches!(entry.file_name().to_str(), Some("target" | "vendor"))
        });
        kept.map(Result::unwrap)
            .filter(|entry| entry.file_type().is_file())
            .map(|entry| {
                let path = entry.path().strip_prefix(root).unwrap();
                (path.display().to_string(), fs::read(entry.path()).unwrap())
            })
            .collect()
    }

    fn restore(&self, project: &Project) {
        let root = self.fixture.workspace.root();
        for path in self
            .project()
            .keys()
            .filter(|path| !project.contains_key(*path))
        {
            fs::remove_file(root.join(path)).unwrap();
        }
        for (path, bytes) in project {
            fs::write(root.join(path), bytes).unwrap();
        }
    }

    /// Bumps in a process of its own, which dies at a step.
    fn killed_at(&self, step: u64) -> bool {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", CHILD])
            .env(FOLDER, self.fixture.workspace.root())
            .env(step::VARIABLE, step.to_string())
            .stdout(std::process::Stdio::null());
        !command.status().unwrap().success()
    }

    /// What any command does first: finishes a change that was decided.
    fn recover(&self) {
        let _vendor = Vendor::lock(&self.fixture.workspace, QUIET).unwrap();
        journal::recover(&self.fixture.workspace).unwrap();
    }
}

fn options(workspace: &Workspace) -> Options {
    let next = workspace.root().parent().unwrap().join("next");
    Options {
        wanted: "1.1.0".to_owned(),
        source: Some(next.into_string()),
        offline: true,
        ..Options::default()
    }
}

#[test]
fn killed_at_any_step_of_a_bump_that_goes_through() {
    if let Ok(folder) = std::env::var(FOLDER) {
        let workspace = Workspace::at(Utf8PathBuf::from(folder));
        bump::start(&workspace, &options(&workspace), QUIET).unwrap();
        return;
    }
    let moved = Moved::new("line 1\n", "line 0\nline 1\n");
    let old = moved.project();
    let (mut undone, mut new) = (0, None);
    for step in 1.. {
        let killed = moved.killed_at(step);
        moved.recover();
        let found = moved.project();
        if found == old {
            assert!(killed, "it ended well and changed nothing");
            undone += 1;
            continue;
        }
        let new = new.get_or_insert_with(|| found.clone());
        assert!(*new == found, "step {step}: between old and new");
        if !killed {
            break;
        }
        moved.restore(&old);
    }
    assert!(undone > 5, "only {undone} kills came before the decision");
    let new = new.unwrap();
    for path in ["mlx.toml", "mlx.lock", "patches/one.patch"] {
        assert_ne!(new[path], old[path], "{path} is what it was");
    }
    assert!(new.contains_key("docs/pin-moves/1.0.0-to-1.1.0.md"));
}

#[test]
fn killed_at_any_step_of_a_bump_that_ends_in_a_conflict() {
    let moved = Moved::new("line 3\n", "line 3, another\n");
    let old = moved.project();
    for step in 1.. {
        let killed = moved.killed_at(step);
        moved.recover();
        assert!(moved.project() == old, "step {step}: the project changed");
        // Either nothing waits, and a bump stops at the same conflict, or one waits already.
        match bump::start(&moved.fixture.workspace, &moved.options, QUIET) {
            Ok((_, outcome)) => assert!(matches!(outcome, Outcome::Conflict { .. }), "{outcome:?}"),
            Err(error) => assert!(matches!(error, Error::BumpPending { .. }), "{error}"),
        }
        bump::abort(&moved.fixture.workspace, QUIET).unwrap();
        if !killed {
            assert!(step > 5, "it ended well at step {step}: was it a bump?");
            break;
        }
    }
    assert!(moved.project() == old);
}
