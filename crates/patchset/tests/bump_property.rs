//! Any series of patches on any upstream, moved to any other: git must have the same result.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use git2::Oid;
use patchset::bump::{self, Fate, Options, Outcome};
use patchset::progress::QUIET;
use patchset::{check, edit};
use proptest::prelude::*;
use support::{Change, Project, Upstream, git, git_output};

const FILE: &str = "src/k.cpp";

/// One patch: the text after it, and the file it adds, if any.
#[derive(Debug, Clone)]
struct Step {
    name: &'static str,
    text: String,
    added: Option<(&'static str, String)>,
}

/// Upstream's text at the old and at the new pin, a file that it adds there, and the patches.
#[derive(Debug, Clone)]
struct Case {
    old: String,
    new: String,
    new_file: Option<(&'static str, String)>,
    steps: Vec<Step>,
}

type Edits = Vec<(prop::sample::Index, Option<String>, bool)>;

/// Inserts, replaces and removes some lines; at least one line stays.
fn edited(text: &str, edits: &Edits) -> String {
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    for (at, line, insert) in edits {
        match line {
            Some(line) if *insert => lines.insert(at.index(lines.len() + 1), line.clone()),
            Some(line) => {
                let at = at.index(lines.len());
                lines[at].clone_from(line);
            }
            None if lines.len() > 1 => drop(lines.remove(at.index(lines.len()))),
            None => {}
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn any_edits(line: &'static str) -> impl Strategy<Value = Edits> {
    let edit = (
        any::<prop::sample::Index>(),
        prop::option::weighted(0.8, line),
        any::<bool>(),
    );
    prop::collection::vec(edit, 1..4)
}

/// A file that a patch or upstream adds: few names and contents, so that they collide.
fn any_file() -> impl Strategy<Value = Option<(&'static str, String)>> {
    let name = prop::sample::select(vec!["src/a.h", "src/b.h"]);
    prop::option::weighted(0.3, (name, "[xy]\n"))
}

/// `old` is the text at the old pin; edits take their lines from `line`.
fn any_case(old: impl Strategy<Value = String>, line: &'static str) -> impl Strategy<Value = Case> {
    let steps = prop::collection::vec((any_edits(line), any_file()), 1..4);
    (old, any_edits(line), any_file(), steps).prop_map(|(old, upstream, new_file, edits)| {
        let new = edited(&old, &upstream);
        let mut steps: Vec<Step> = Vec::new();
        let mut before = old.clone();
        for (name, (edits, added)) in ["one", "two", "three"].into_iter().zip(edits) {
            let text = edited(&before, &edits);
            let added = added.filter(|(path, _)| {
                steps
                    .iter()
                    .flat_map(|step| &step.added)
                    .all(|(other, _)| other != path)
            });
            if text != before || added.is_some() {
                before.clone_from(&text);
                steps.push(Step { name, text, added });
            }
        }
        Case {
            old,
            new,
            new_file,
            steps,
        }
    })
}

/// A few lines, repeated: a hunk fits in many places.
fn ambiguous() -> impl Strategy<Value = Case> {
    let old = prop::collection::vec("[abc]\n", 1..40).prop_map(|lines| lines.concat());
    any_case(old, "[abcd]")
}

/// All lines are different: a hunk fits in one place.
fn unambiguous() -> impl Strategy<Value = Case> {
    let old = (1_usize..40).prop_map(|count| (0..count).map(|n| format!("line {n}\n")).collect());
    any_case(old, "new [a-z]{8}")
}

/// The result of a series.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// This tree, without these patches: upstream has them.
    Tree(Oid, Vec<String>),
    /// This patch does not fit.
    Conflict(String),
}

struct World {
    upstream: Upstream,
    project: Project,
}

impl World {
    fn new(case: &Case) -> Self {
        let upstream = Upstream::new();
        upstream.release("1.0.0", &[(FILE, &case.old)]);
        let mut before = case.old.as_str();
        let parts: Vec<_> = case
            .steps
            .iter()
            .map(|step| {
                let edit = (FILE, before, step.text.as_str());
                let edits = if before == step.text {
                    vec![]
                } else {
                    vec![edit]
                };
                let adds: Vec<_> = step
                    .added
                    .iter()
                    .map(|(path, text)| (*path, text.as_str()))
                    .collect();
                before = &step.text;
                (step.name, edits, adds)
            })
            .collect();
        let changes: Vec<_> = parts
            .iter()
            .map(|(name, edits, adds)| Change { name, edits, adds })
            .collect();
        let project = Project::new(&upstream, &changes);
        let mut files = vec![(FILE, case.new.as_str())];
        files.extend(
            case.new_file
                .iter()
                .map(|(path, text)| (*path, text.as_str())),
        );
        upstream.release("1.1.0", &files);
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
                let absorbed = report
                    .patches
                    .iter()
                    .filter(|patch| patch.fate == Fate::Absorbed);
                let absorbed = absorbed.map(|patch| patch.name.clone()).collect();
                End::Tree(report.final_tree.unwrap(), absorbed)
            }
            Outcome::Conflict { patch, .. } => End::Conflict(patch),
            other => panic!("{other:?}"),
        }
    }

    /// A clone of upstream with a commit for each patch on the old pin, and the new pin checked out.
    fn lay_out(&self, case: &Case, folder: &Utf8Path) -> Vec<String> {
        git(
            folder,
            &[
                "clone",
                "--quiet",
                "--shared",
                self.upstream.path().as_str(),
                ".",
            ],
        );
        git(folder, &["checkout", "--quiet", "v1.0.0"]);
        let mut commits = Vec::new();
        for step in &case.steps {
            fs::write(folder.join(FILE), &step.text).unwrap();
            if let Some((path, text)) = &step.added {
                fs::write(folder.join(path), text).unwrap();
            }
            git(folder, &["add", "--all"]);
            git(folder, &["commit", "--quiet", "-m", step.name]);
            commits.push(git(folder, &["rev-parse", "HEAD"]).trim().to_owned());
        }
        git(folder, &["checkout", "--quiet", "v1.1.0"]);
        commits
    }
}

fn scratch() -> (tempfile::TempDir, Utf8PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap();
    (folder, path)
}

fn tree(folder: &Utf8Path) -> Oid {
    Oid::from_str(git(folder, &["rev-parse", "HEAD^{tree}"]).trim()).unwrap()
}

/// The result of `git cherry-pick`. libgit2 compares lines with Myers' algorithm. Git does so if told to, but before
/// 2.50 its default strategy ignores the setting.
fn cherry_picked(world: &World, case: &Case) -> End {
    let (_scratch, folder) = scratch();
    let mut absorbed = Vec::new();
    for (step, commit) in case.steps.iter().zip(world.lay_out(case, &folder)) {
        let how = ["--strategy=recursive", "-Xdiff-algorithm=myers"];
        let picked = git_output(&folder, &["cherry-pick", how[0], how[1], &commit]);
        if picked.status.success() {
            continue;
        }
        if !git(&folder, &["ls-files", "--unmerged"]).is_empty() {
            return End::Conflict(step.name.to_owned());
        }
        git(&folder, &["cherry-pick", "--skip"]);
        absorbed.push(step.name.to_owned());
    }
    End::Tree(tree(&folder), absorbed)
}

/// The tree that `git am -3` produces; `None` if it stops.
fn mailed(world: &World, case: &Case) -> Option<Oid> {
    let (_scratch, folder) = scratch();
    let commits = world.lay_out(case, &folder);
    let last = commits.last().map_or("v1.0.0", String::as_str);
    let mails = git(
        &folder,
        &[
            "format-patch",
            "--output-directory=.git/mails",
            &format!("v1.0.0..{last}"),
        ],
    );
    let mut am = vec!["am", "--quiet", "--3way"];
    am.extend(mails.lines());
    let sent = mails.is_empty() || git_output(&folder, &am).status.success();
    sent.then(|| tree(&folder))
}

/// The bump's result in the project is canonical; laying it out and exporting it returns it unchanged.
fn comes_back(project: &Project) -> Result<(), TestCaseError> {
    let before = project.files();
    edit::open(&project.workspace, None, false, QUIET).unwrap();
    let exported = edit::export(&project.workspace, false, QUIET).unwrap();
    prop_assert_eq!(exported.changed, Vec::<String>::new());
    prop_assert_eq!(project.files(), before);
    let faults = check::patches(&project.workspace, None, QUIET).faults;
    prop_assert!(faults.is_empty(), "{faults:?}");
    Ok(())
}

/// Each case starts git about forty times, so few are tried unless `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        // The file would be written outside this repository; findings become separate tests.
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 12;
    }
    config
}

/// Found by the property: upstream drops the line that a patch moves. With a histogram diff it is a conflict.
#[test]
fn a_line_that_upstream_drops_and_a_patch_moves_is_where_the_patch_puts_it() {
    let lines = |text: &str| text.chars().map(|line| format!("{line}\n")).collect();
    let step = |name, text| Step {
        name,
        text: lines(text),
        added: None,
    };
    let case = Case {
        old: lines("aaacbbbbaaaaaaaacaaa"),
        new: lines("aaabbbbaaaaaaaacaaa"),
        new_file: None,
        steps: vec![
            step("one", "aaacbbbbbaaaaaaaaacaaa"),
            step("two", "aaabbcbbbaaaaaaaaacaaa"),
        ],
    };
    let world = World::new(&case);
    let end = world.bump();
    assert!(matches!(end, End::Tree(..)), "{end:?}");
    assert_eq!(end, cherry_picked(&world, &case));
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn cherry_pick_comes_to_the_same(case in prop_oneof![ambiguous(), unambiguous()]) {
        let world = World::new(&case);
        let end = world.bump();
        prop_assert_eq!(&end, &cherry_picked(&world, &case));
        if let End::Tree(..) = end {
            comes_back(&world.project)?;
        }
    }

    /// Mail is first applied by context, which in a text of equal lines may be another place.
    #[test]
    fn am_comes_to_the_same(case in unambiguous()) {
        let world = World::new(&case);
        let found = match world.bump() {
            End::Tree(tree, _) => Some(tree),
            End::Conflict(_) => None,
        };
        prop_assert_eq!(found, mailed(&world, &case));
    }
}
