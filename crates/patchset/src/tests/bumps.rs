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

/// The folder in which a child process bumps. If set, the test does only that.
const FOLDER: &str = "OVERLAY_TEST_BUMP";
const CHILD: &str = "tests::bumps::killed_at_any_step_of_a_bump_that_goes_through";

/// The child's action: it starts a bump, continues one, or goes back a step.
const HOW: &str = "OVERLAY_TEST_BUMP_HOW";

/// Every file that a bump may change.
type Project = BTreeMap<String, Vec<u8>>;

/// The fixture, and next to it the folder of upstream's next version.
struct Moved {
    fixture: Fixture,
    options: Options,
}

impl Moved {
    /// Upstream's next version, with this edit of `a.txt`.
    fn new(from: &str, to: &str) -> Self {
        Self::with(&[(from, to)])
    }

    fn with(edits: &[(&str, &str)]) -> Self {
        let fixture = Fixture::new();
        let mut next = upstream();
        for (from, to) in edits {
            edit(&mut next, "a.txt", from, to);
        }
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

    /// Bumps in a separate process, which dies at a step.
    fn killed_at(&self, step: u64) -> bool {
        self.killed("start", step)
    }

    fn killed(&self, how: &str, step: u64) -> bool {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", CHILD])
            .env(HOW, how)
            .env(FOLDER, self.fixture.workspace.root())
            .env(step::VARIABLE, step.to_string())
            .stdout(std::process::Stdio::null());
        !command.status().unwrap().success()
    }

    /// The first action of any command: it finishes a change that was decided.
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
        match std::env::var(HOW).as_deref() {
            Ok("continue") => drop(bump::resume(&workspace, false, QUIET).unwrap()),
            Ok("back") => drop(bump::back(&workspace, false, QUIET).unwrap()),
            _ => drop(bump::start(&workspace, &options(&workspace), QUIET).unwrap()),
        }
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
            assert!(killed, "it succeeded and changed nothing");
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
        assert_ne!(new[path], old[path], "{path} has not changed");
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
        // Either nothing waits and a bump stops at the same conflict, or one waits already.
        match bump::start(&moved.fixture.workspace, &moved.options, QUIET) {
            Ok((_, outcome)) => assert!(matches!(outcome, Outcome::Conflict { .. }), "{outcome:?}"),
            Err(error) => assert!(matches!(error, Error::BumpPending { .. }), "{error}"),
        }
        bump::abort(&moved.fixture.workspace, QUIET).unwrap();
        if !killed {
            assert!(step > 5, "it succeeded at step {step}: was it a bump?");
            break;
        }
    }
    assert!(moved.project() == old);
}

/// The waiting patch, if any, and the text in its worktree.
fn waits(moved: &Moved) -> Option<(String, String)> {
    let waiting = bump::waiting(&moved.fixture.workspace).unwrap()?;
    let text = fs::read_to_string(waiting.worktree.join("a.txt")).unwrap();
    Some((waiting.patch, text))
}

/// Resolves the patch that waits: its line `number` becomes `text`.
fn decide(moved: &Moved, number: u32, text: &str) {
    let waiting = bump::waiting(&moved.fixture.workspace).unwrap().unwrap();
    let file = waiting.worktree.join("a.txt");
    let marked = fs::read_to_string(&file).unwrap();
    if let Some(start) = marked.find("<<<<<<< ") {
        let end = marked.find(">>>>>>> ").unwrap();
        let end = end + marked[end..].find('\n').unwrap() + 1;
        assert!(
            marked[start..end].contains(&format!("line {number}")),
            "{marked}"
        );
        fs::write(
            &file,
            format!("{}{text}{}", &marked[..start], &marked[end..]),
        )
        .unwrap();
    }
}

/// Kills a bump that is at `before` at every step of `how`. The next runs continue from before it or after it, with the
/// same result.
fn killed_at_every_step(moved: &Moved, how: &str, before: &Utf8PathBuf) {
    let root = moved.fixture.workspace.root();
    let restore = || {
        fs::remove_dir_all(root).unwrap();
        copy(before, root);
    };
    let old = moved.project();
    let stood = waits(moved);
    assert!(!moved.killed(how, u64::MAX), "it does not succeed");
    let (new, stands) = (moved.project(), waits(moved));
    assert!(old != new || stood != stands, "it does nothing");
    let (mut undone, mut done) = (0, 0);
    let mut step = 0;
    loop {
        // After the decision only leftovers are removed, file by file.
        step += if done < 5 { 1 } else { 10 };
        restore();
        let killed = moved.killed(how, step);
        moved.recover();
        let is_over = stands.is_none() && moved.project() == new;
        let is_there = is_over || waits(moved).is_some();
        assert!(is_there, "step {step}: the bump is lost");
        // Removes what is left next to it, as any bump does first.
        if let Err(error) = bump::start(&moved.fixture.workspace, &moved.options, QUIET) {
            assert!(
                matches!(error, Error::BumpPending { .. } | Error::Source { .. }),
                "step {step}: {error}"
            );
        }
        let (project, waiting) = (moved.project(), waits(moved));
        if (&project, &waiting) == (&new, &stands) {
            done += 1;
        } else {
            assert_eq!((&project, &waiting), (&old, &stood), "step {step}");
            assert!(killed);
            undone += 1;
        }
        let mut beside: Vec<_> = fs::read_dir(root.join("target"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        beside.retain(|name| name.starts_with("bump"));
        let expected: &[&str] = if waiting.is_some() { &["bump"] } else { &[] };
        assert_eq!(beside, expected, "step {step}: something was left");
        if !killed {
            break;
        }
    }
    assert!(undone > 3 && done > 1, "{undone} before it, {done} after");
}

fn copy(from: &camino::Utf8Path, to: &camino::Utf8Path) {
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry.unwrap();
        let path = camino::Utf8Path::from_path(entry.path()).unwrap();
        let to = to.join(path.strip_prefix(from).unwrap());
        if entry.file_type().is_dir() {
            fs::create_dir_all(to).unwrap();
        } else {
            crate::place::disk::copy_with_time(path, &to).unwrap();
        }
    }
}

#[test]
fn killed_at_any_step_of_going_on_and_back() {
    let clash = [
        ("line 3\n", "line 3, another\n"),
        ("line 15\n", "line 15, another\n"),
    ];
    let moved = Moved::with(&clash);
    let workspace = &moved.fixture.workspace;
    let saved = |name: &str| {
        let folder = moved.fixture.root().join(name);
        copy(workspace.root(), &folder);
        folder
    };
    bump::start(workspace, &moved.options, QUIET).unwrap();
    decide(&moved, 3, "line three, another\n");
    // To the next conflict, back a step, and to the end.
    killed_at_every_step(&moved, "continue", &saved("first"));
    assert_eq!(waits(&moved).unwrap().0, "two");
    killed_at_every_step(&moved, "back", &saved("second"));
    assert_eq!(waits(&moved).unwrap().0, "one");
    bump::resume(workspace, false, QUIET).unwrap();
    decide(&moved, 15, "line fifteen\n");
    killed_at_every_step(&moved, "continue", &saved("third"));
    assert_eq!(waits(&moved), None);
    assert!(workspace.patches().join("two.patch").exists());
}
