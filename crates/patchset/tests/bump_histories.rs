//! Histories in which upstream renames files, changes modes and line ends, makes links and removes files: a bump has
//! the same result as git's cherry-pick.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;

use camino::Utf8Path;
use fs_err as fs;
use git2::{Index, Oid, Repository};
use patchset::bump::{self, Options, Outcome};
use patchset::progress::QUIET;
use patchset::{check, edit};
use proptest::prelude::*;
use support::{Change, Project, Upstream, entry, git, git_output};

/// The number of histories unless `PROPTEST_CASES` is set; each starts git about twenty times.
const CASES: u32 = 12;
const FILES: [&str; 3] = ["src/f0.cpp", "src/f1.cpp", "src/f2.cpp"];
const LINES: usize = 24;

/// A line whose text changes, or a line added after it.
type Edit = (usize, bool, String);

/// A change of upstream's to a file.
#[derive(Debug, Clone)]
enum Action {
    Keep,
    Edit(Vec<Edit>),
    Rename(&'static str, Vec<Edit>),
    Mode(Vec<Edit>),
    WindowsLines,
    Link,
    Remove,
}

#[derive(Debug, Clone)]
struct Step {
    edits: Vec<(usize, Vec<Edit>)>,
    adds: Option<&'static str>,
}

#[derive(Debug, Clone)]
struct History {
    executable: [bool; 3],
    actions: [Action; 3],
    new: Option<&'static str>,
    steps: Vec<Step>,
}

fn text_of(file: usize) -> String {
    (0..LINES)
        .map(|line| format!("int file_{file}_line_{line};\n"))
        .collect()
}

fn edited(text: &str, edits: &[Edit]) -> String {
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    for (at, instead, line) in edits {
        let at = at % lines.len();
        if *instead {
            lines[at].clone_from(line);
        } else {
            lines.insert(at, line.clone());
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn any_edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = (0..LINES, any::<bool>(), "int new_[a-d];");
    prop::collection::vec(edit, 1..3)
}

/// Few names, so that those of upstream and of the patches collide.
fn any_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["lib/g.cpp", "src/a.h", "src/b.h"])
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        2 => Just(Action::Keep),
        3 => any_edits().prop_map(Action::Edit),
        4 => (any_name(), prop_oneof![Just(Vec::new()), any_edits()])
            .prop_map(|(name, edits)| Action::Rename(name, edits)),
        2 => prop_oneof![Just(Vec::new()), any_edits()].prop_map(Action::Mode),
        1 => Just(Action::WindowsLines),
        1 => Just(Action::Link),
        1 => Just(Action::Remove),
    ]
}

fn any_history() -> impl Strategy<Value = History> {
    let step = (
        prop::collection::btree_map(0..FILES.len(), any_edits(), 1..3),
        prop::option::weighted(0.3, any_name()),
    );
    let steps = prop::collection::vec(step, 1..4);
    let actions = [any_action(), any_action(), any_action()];
    let new = prop::option::weighted(0.2, any_name());
    (any::<[bool; 3]>(), actions, new, steps).prop_map(|(executable, actions, new, steps)| {
        let steps = steps.into_iter().map(|(edits, adds)| Step {
            edits: edits.into_iter().collect(),
            adds,
        });
        History {
            executable,
            actions,
            new,
            steps: steps.collect(),
        }
    })
}

/// The history without impossible steps: two files of one name, patches that change nothing.
fn possible(mut history: History) -> History {
    let mut names = Vec::new();
    for action in &mut history.actions {
        if let Action::Rename(name, edits) = action {
            if names.contains(name) {
                *action = Action::Edit(std::mem::take(edits));
            } else {
                names.push(name);
            }
        }
    }
    history.new = history.new.filter(|name| !names.contains(name));
    let mut added = Vec::new();
    for step in &mut history.steps {
        step.adds = step.adds.filter(|name| !added.contains(name));
        added.extend(step.adds);
    }
    history
}

/// Each file's text after each step, starting with that of the old pin.
fn texts(history: &History) -> Vec<[String; 3]> {
    let mut all = vec![[0, 1, 2].map(text_of)];
    for step in &history.steps {
        let mut texts = all.last().unwrap().clone();
        for (file, edits) in &step.edits {
            texts[*file] = edited(&texts[*file], edits);
        }
        all.push(texts);
    }
    all
}

const NAMES: [&str; 3] = ["one", "two", "three"];

#[derive(Debug, PartialEq, Eq)]
enum End {
    /// This tree, without these patches.
    Tree(Oid, Vec<String>),
    /// This patch does not fit.
    Conflict(String),
}

struct World {
    upstream: Upstream,
    project: Project,
}

impl World {
    fn new(history: &History) -> Self {
        let upstream = Upstream::new();
        let mode = |file: usize| {
            if history.executable[file] {
                0o100_755
            } else {
                0o100_644
            }
        };
        upstream.release_with("1.0.0", |repo, index| {
            for (file, path) in FILES.iter().enumerate() {
                let blob = repo.blob(text_of(file).as_bytes()).unwrap();
                index.add(&entry(path, mode(file), blob)).unwrap();
            }
        });
        let texts = texts(history);
        let parts: Vec<_> = (0..history.steps.len())
            .map(|at| {
                let (before, after) = (&texts[at], &texts[at + 1]);
                let files = (0..FILES.len()).filter(|file| before[*file] != after[*file]);
                let edits: Vec<_> = files
                    .map(|file| (FILES[file], before[file].as_str(), after[file].as_str()))
                    .collect();
                let adds: Vec<_> = history.steps[at]
                    .adds
                    .iter()
                    .map(|path| (*path, "int added;\n"))
                    .collect();
                (edits, adds)
            })
            .collect();
        let changes: Vec<_> = parts
            .iter()
            .zip(NAMES)
            .map(|((edits, adds), name)| Change { name, edits, adds })
            .collect();
        let project = Project::new(&upstream, &changes);
        upstream.release_with("1.1.0", |repo, index| {
            for (file, action) in history.actions.iter().enumerate() {
                act(repo, index, (file, mode(file)), action);
            }
            if let Some(path) = history.new {
                let blob = repo.blob(b"int upstreams;\n").unwrap();
                index.add(&entry(path, 0o100_644, blob)).unwrap();
            }
        });
        Self { upstream, project }
    }

    fn bump(&self) -> End {
        let options = Options {
            wanted: "1.1.0".to_owned(),
            drop_absorbed: true,
            ..Options::default()
        };
        let (report, outcome) = bump::start(&self.project.workspace, &options, QUIET).unwrap();
        match outcome {
            Outcome::Done => {
                let gone = report.empty().map(|patch| patch.name.clone()).collect();
                End::Tree(report.final_tree.unwrap(), gone)
            }
            Outcome::Conflict { patch, .. } => End::Conflict(patch),
            other => panic!("{other:?}"),
        }
    }

    /// A clone with a commit for each patch on the old pin; each is cherry-picked onto the new one.
    fn picked(&self, history: &History) -> End {
        let scratch = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(scratch.path()).unwrap();
        let address = self.upstream.path().as_str();
        git(folder, &["clone", "--quiet", "--shared", address, "."]);
        git(folder, &["checkout", "--quiet", "v1.0.0"]);
        let mut commits = Vec::new();
        for (step, texts) in history.steps.iter().zip(&texts(history)[1..]) {
            for (path, text) in FILES.iter().zip(texts) {
                fs::write(folder.join(path), text).unwrap();
            }
            if let Some(path) = step.adds {
                fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
                fs::write(folder.join(path), "int added;\n").unwrap();
            }
            git(folder, &["add", "--all"]);
            git(folder, &["commit", "--quiet", "-m", "step"]);
            commits.push(git(folder, &["rev-parse", "HEAD"]).trim().to_owned());
        }
        git(folder, &["checkout", "--quiet", "v1.1.0"]);
        let mut gone = Vec::new();
        for (name, commit) in NAMES.iter().zip(&commits) {
            // Renames of whole folders are off: a file that a patch adds stays where the patch puts it.
            let pick = [
                "-c",
                "merge.directoryRenames=false",
                "cherry-pick",
                "--strategy=recursive",
                "-Xdiff-algorithm=myers",
                commit,
            ];
            if git_output(folder, &pick).status.success() {
                continue;
            }
            if !git(folder, &["ls-files", "--unmerged"]).is_empty() {
                return End::Conflict((*name).to_owned());
            }
            git(folder, &["cherry-pick", "--skip"]);
            gone.push((*name).to_owned());
        }
        let tree = git(folder, &["rev-parse", "HEAD^{tree}"]);
        End::Tree(Oid::from_str(tree.trim()).unwrap(), gone)
    }
}

fn act(repo: &Repository, index: &mut Index, (file, mode): (usize, u32), action: &Action) {
    let old = text_of(file);
    let path = FILES[file];
    let mut put = |path: &str, mode: u32, text: &str| {
        let blob = repo.blob(text.as_bytes()).unwrap();
        index.add(&entry(path, mode, blob)).unwrap();
    };
    match action {
        Action::Keep => {}
        Action::Edit(edits) => put(path, mode, &edited(&old, edits)),
        Action::Mode(edits) => put(path, mode ^ 0o111, &edited(&old, edits)),
        Action::WindowsLines => put(path, mode, &old.replace('\n', "\r\n")),
        Action::Link => put(path, 0o120_000, "other.cpp"),
        Action::Rename(to, edits) => {
            put(to, mode, &edited(&old, edits));
            index.remove_path(path.as_ref()).unwrap();
        }
        Action::Remove => index.remove_path(path.as_ref()).unwrap(),
    }
}

fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        // The file would be written outside this repository; findings become separate tests.
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn cherry_pick_comes_to_the_same_whatever_upstream_does(history in any_history().prop_map(possible)) {
        let texts = texts(&history);
        let changes = |at: usize| texts[at] != texts[at + 1] || history.steps[at].adds.is_some();
        prop_assume!((0..history.steps.len()).all(changes));
        let world = World::new(&history);
        let before: BTreeMap<_, _> = world.project.files().into_iter().collect();
        let end = world.bump();
        prop_assert_eq!(&end, &world.picked(&history));
        match end {
            End::Conflict(_) => {
                let after: BTreeMap<_, _> = world.project.files().into_iter().collect();
                prop_assert_eq!(before, after);
            }
            End::Tree(..) => {
                // The result is canonical, and an export returns it unchanged.
                edit::open(&world.project.workspace, None, false, QUIET).unwrap();
                let exported = edit::export(&world.project.workspace, false, QUIET).unwrap();
                prop_assert_eq!(exported.changed, Vec::<String>::new());
                let faults = check::patches(&world.project.workspace, None, QUIET).faults;
                prop_assert!(faults.is_empty(), "{faults:?}");
            }
        }
    }
}
