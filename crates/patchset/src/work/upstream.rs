//! Prepares a patch for upstream: a branch on one of upstream's commits with one commit for the change and one for its
//! test, the same as mails, and a checklist of what is missing.
//!
//! A person must write the texts: upstream forbids machine-written descriptions and commit messages. They start as
//! placeholders, and a bundle with a placeholder is not ready. Nothing here pushes.

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use git2::{FileMode, Oid, Repository};
use serde::{Deserialize, Deserializer};

use crate::check::{self, Findings};
use crate::error::{Error, Result};
use crate::place::disk;
use crate::place::workspace::Workspace;
use crate::process;
use crate::progress::{Progress, QUIET};
use crate::project::Project;
use crate::read;
use crate::sources;
use crate::sources::store::Store;
use crate::tree::path;
use crate::work::memory::Memory;
use crate::work::merge::{Merged, merge};
use crate::work::workbench::{Who, Workbench};

/// The start of a text that a person has not written yet.
const PLACEHOLDER: &str = "PLACEHOLDER";

/// Options of a bundle.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub patch: String,
    /// Base the branch on this repository's `main` instead of the pin.
    pub main_of: Option<String>,
    /// The clang-format to check with.
    pub clang_format: Option<Utf8PathBuf>,
}

#[derive(Debug, Clone)]
pub struct Bundle {
    pub folder: Utf8PathBuf,
    /// The points of its checklist.
    pub points: Vec<Point>,
}

/// One point of a checklist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// The subject.
    pub what: String,
    /// Why it is not done; `None` if it is.
    pub missing: Option<String>,
}

impl Bundle {
    /// The points that are not done; if there are none, the bundle is ready for a person to send.
    pub fn missing(&self) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(|point| point.missing.is_some())
    }
}

/// `upstream/<patch>/bundle.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Recipe {
    branch: String,
    /// Whom the description must credit, if others had the idea first.
    lineage: Option<String>,
    #[serde(default, rename = "table")]
    tables: Vec<Table>,
    #[serde(default)]
    evidence: Vec<Evidence>,
    test: Option<Test>,
    /// Why upstream's tests cannot test it.
    no_test: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    #[serde(deserialize_with = "relative")]
    file: String,
    hardware: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Evidence {
    #[serde(deserialize_with = "relative")]
    file: String,
    what: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Test {
    /// Upstream's test file.
    #[serde(deserialize_with = "relative")]
    file: String,
    /// The text before which the test is inserted; it must occur once.
    before: String,
    /// The file in the recipe's folder with the test's text.
    #[serde(deserialize_with = "relative")]
    body: String,
    /// The name for unittest.
    name: String,
    fails_without_the_change: bool,
}

fn relative<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    path::check(&text, "bundle.toml").map_err(serde::de::Error::custom)?;
    Ok(text)
}

/// Makes the bundle of a patch in `target/upstream/<patch>`, again each time.
///
/// # Errors
/// No such patch, or no recipe for it; the patch or its test does not fit on the base.
pub fn bundle(workspace: &Workspace, options: &Options, progress: Progress<'_>) -> Result<Bundle> {
    let name = &options.patch;
    let project = Project::open(workspace, progress)?;
    project.lock()?;
    let at = project.series.position(name)?;
    let recipe_folder = workspace.root().join("upstream").join(name);
    if !recipe_folder.join("bundle.toml").is_file() {
        let message =
            format!("upstream/{name}/bundle.toml is missing; upstream/README.md describes it");
        return Err(Error::source(name.as_str(), message));
    }
    let recipe: Recipe = read::toml(&recipe_folder.join("bundle.toml"))?;
    if recipe.test.is_some() == recipe.no_test.is_some() {
        let message = "expected either [test] or `no-test` with the reason why there is none";
        return Err(Error::source(
            format!("upstream/{name}/bundle.toml"),
            message,
        ));
    }

    let store = Store::open(workspace)?;
    let pinned = project.fetch_base(&store, false, progress)?;
    let (begin, onto) = match &options.main_of {
        Some(url) => {
            let (commit, tree) = sources::fetch_name(&store, url, "refs/heads/main", progress)?;
            (Some(commit), tree)
        }
        None => (pinned_commit(&project, &store, pinned), pinned),
    };

    let folder = workspace.root().join("target/upstream").join(name);
    disk::remove_tree(&folder)?;
    let bench = Workbench::create(&folder.join("mlx"), &store)?;
    let base = match begin {
        Some(commit) => {
            bench.begin_at(commit)?;
            commit
        }
        None => bench.commit("MLX\n", onto, None)?,
    };
    // Whether there is history depends on the tree that is there now.
    let bench = Workbench::open(&folder.join("mlx"))?;
    let repo = bench.repo();
    let (before, after) = project.series.resolve(repo, pinned)?.around(at);
    let change = put(repo, name, before, after, onto)?;

    let who = Who::of_this_person(repo);
    let read = |file: &str| fs::read_to_string(recipe_folder.join(file));
    let mut last = bench.commit_as(&who, &read("message-change.txt")?, change, Some(base))?;
    let mut tree = change;
    if let Some(test) = &recipe.test {
        let body = read(&test.body)?;
        tree = insert_test(repo, change, test, &body)?;
        last = bench.commit_as(&who, &read("message-test.txt")?, tree, Some(last))?;
    }
    bench.check_out(&recipe.branch, last)?;

    write_mails(&folder, base)?;
    fs::copy(
        recipe_folder.join("description.md"),
        folder.join("description.md"),
    )?;
    // A change that is not about speed has none.
    if !recipe.tables.is_empty() {
        fs::copy(recipe_folder.join("bench.py"), folder.join("bench.py"))?;
    }
    let mut points = vec![
        words(
            &recipe_folder,
            "description.md",
            "the description, in a person's words",
        )?,
        words(
            &recipe_folder,
            "message-change.txt",
            "the commit message of the change, in a person's words",
        )?,
        point(
            "commits in a person's name",
            (!who.is_known())
                .then(|| "git does not know your name; set user.name and user.email".to_owned()),
        ),
        point(
            "a branch on one of upstream's commits, so that it can be pushed",
            begin.is_none().then(|| {
                "the pin's commit is not available, so the branch is on a separate commit; \
                 --main-of <upstream's address> puts it on upstream's main"
                    .to_owned()
            }),
        ),
    ];
    if let Some(lineage) = &recipe.lineage {
        points.push(credit(&recipe_folder, lineage)?);
    }
    points.push(format_point(
        options.clang_format.as_deref(),
        repo,
        onto,
        tree,
    )?);
    match (&recipe.test, &recipe.no_test) {
        (Some(test), _) => {
            points.push(words(
                &recipe_folder,
                "message-test.txt",
                "the commit message of the test, in a person's words",
            )?);
            points.push(test_point(test));
        }
        (None, reason) => points.push(point(
            format!(
                "no test in upstream's layout: {}",
                reason.as_deref().unwrap_or_default()
            ),
            None,
        )),
    }
    for table in &recipe.tables {
        points.push(table_point(&recipe_folder, &folder, table)?);
    }
    for evidence in &recipe.evidence {
        points.push(evidence_point(&recipe_folder, &folder, evidence)?);
    }
    let bundle = Bundle {
        folder: folder.clone(),
        points,
    };
    fs::write(
        folder.join("CHECKLIST.md"),
        checklist(&bundle, &recipe, (begin, onto)),
    )?;
    Ok(bundle)
}

/// The pinned commit, if a git source provided it.
fn pinned_commit(project: &Project, store: &Store, tree: Oid) -> Option<Oid> {
    let confirmed = project.locked.as_ref()?.confirmed.as_ref();
    let known = confirmed.map(|confirmed| confirmed.commit);
    let commit = known.or(project.manifest.mlx.full_commit())?;
    let found = store.repo().find_commit(commit).ok()?;
    (found.tree_id() == tree).then_some(commit)
}

/// Applies the patch by itself, without those before it in the series.
fn put(repo: &Repository, name: &str, parent: Oid, patched: Oid, onto: Oid) -> Result<Oid> {
    match merge(repo, &Memory::default(), name, parent, patched, onto)? {
        Merged::Tree(tree) if tree == onto => Err(Error::patch(
            name,
            "the base already has all of it; there is nothing to propose",
        )),
        Merged::Tree(tree) => Ok(tree),
        Merged::Clashes(clashes) => {
            let paths: Vec<_> = clashes
                .conflicts()
                .into_iter()
                .map(|conflict| conflict.path)
                .collect();
            Err(Error::patch(
                name,
                format!(
                    "it does not fit on this base by itself, in {}",
                    paths.join(", ")
                ),
            ))
        }
    }
}

fn insert_test(repo: &Repository, tree: Oid, test: &Test, body: &str) -> Result<Oid> {
    let fail = |reason: String| Error::source(test.file.as_str(), reason);
    let tree = repo.find_tree(tree)?;
    let entry = tree
        .get_path(test.file.as_ref())
        .map_err(|_| fail("upstream's test file does not exist".to_owned()))?;
    let blob = repo.find_blob(entry.id())?;
    let text =
        std::str::from_utf8(blob.content()).map_err(|_| fail("it is not UTF-8".to_owned()))?;
    let mut places = text.match_indices(&test.before);
    let (Some((at, _)), None) = (places.next(), places.next()) else {
        return Err(fail(format!(
            "expected {:?} in it once, to put the test before",
            test.before
        )));
    };
    let text = format!(
        "{}{}\n{}",
        &text[..at],
        body.trim_end_matches('\n').to_owned() + "\n",
        &text[at..]
    );
    let blob = repo.blob(text.as_bytes())?;
    let mode = if entry.filemode() == 0o100_755 {
        FileMode::BlobExecutable
    } else {
        FileMode::Blob
    };
    Ok(git2::build::TreeUpdateBuilder::new()
        .upsert(test.file.as_str(), blob, mode)
        .create_updated(repo, &tree)?)
}

fn write_mails(folder: &Utf8Path, base: Oid) -> Result<()> {
    let mut command = process::command("git");
    command
        .current_dir(folder.join("mlx"))
        .args([
            "format-patch",
            "--quiet",
            "--full-index",
            "--zero-commit",
            "--no-signature",
            "--output-directory=../mails",
        ])
        .arg(base.to_string());
    process::run(&mut command, QUIET).map(drop)
}

fn point(what: impl Into<String>, missing: Option<String>) -> Point {
    Point {
        what: what.into(),
        missing,
    }
}

fn words(folder: &Utf8Path, file: &str, what: &str) -> Result<Point> {
    let text = fs::read_to_string(folder.join(file))?;
    let missing = if text.contains(PLACEHOLDER) {
        Some(format!("{file} is still a placeholder"))
    } else if text.trim().is_empty() {
        Some(format!("{file} is empty"))
    } else {
        None
    };
    Ok(point(what, missing))
}

fn credit(folder: &Utf8Path, lineage: &str) -> Result<Point> {
    let text = fs::read_to_string(folder.join("description.md"))?;
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let given = words(&text).contains(&words(lineage));
    let missing = (!given).then(|| "description.md does not name it".to_owned());
    Ok(point(format!("credit to the lineage: {lineage}"), missing))
}

fn format_point(
    program: Option<&Utf8Path>,
    repo: &Repository,
    base: Oid,
    tree: Oid,
) -> Result<Point> {
    let what = "formatted as by MLX's pre-commit";
    let Some(program) = program else {
        return Ok(point(
            what,
            Some("not checked: clang-format was not found".to_owned()),
        ));
    };
    let mut findings = Findings::default();
    check::check_format(program, repo, base, tree, &mut findings)?;
    let faults = findings.faults.iter().map(ToString::to_string);
    let all: Vec<_> = faults.chain(findings.notes).collect();
    Ok(point(what, (!all.is_empty()).then(|| all.join("; "))))
}

fn test_point(test: &Test) -> Point {
    let expected = if test.fails_without_the_change {
        "it must fail without the change and pass with it"
    } else {
        "the change alters no number, so the test checks equality and must pass on both"
    };
    let (name, file) = (&test.name, &test.file);
    point(
        format!(
            "a test in upstream's own layout, {name} in {file}; written, to be run by hand (below): {expected}"
        ),
        None,
    )
}

/// A table counts if it names its hardware and that is Apple's.
fn table_point(from: &Utf8Path, to: &Utf8Path, table: &Table) -> Result<Point> {
    let what = format!("raw table from {}", table.hardware);
    let file = from.join(&table.file);
    if !file.is_file() {
        return Ok(point(
            what,
            Some(format!(
                "{} does not exist; bench.py makes it, in the order B A A B",
                table.file
            )),
        ));
    }
    let text = fs::read_to_string(&file)?;
    let states = text.lines().any(|line| {
        line.strip_prefix("# hardware: ")
            .is_some_and(|name| name.starts_with("Apple "))
    });
    keep(&file, to, &table.file)?;
    Ok(point(
        what,
        (!states).then(|| {
            format!(
                "{} does not state Apple hardware in a line `# hardware: Apple …`",
                table.file
            )
        }),
    ))
}

fn evidence_point(from: &Utf8Path, to: &Utf8Path, evidence: &Evidence) -> Result<Point> {
    let file = from.join(&evidence.file);
    if !file.is_file() {
        return Ok(point(
            &evidence.what,
            Some(format!("{} does not exist yet", evidence.file)),
        ));
    }
    keep(&file, to, &evidence.file)?;
    Ok(point(&evidence.what, None))
}

fn keep(file: &Utf8Path, folder: &Utf8Path, name: &str) -> Result<()> {
    let to = folder.join(name);
    to.parent().map_or(Ok(()), disk::create_dir_all)?;
    fs::copy(file, to)?;
    Ok(())
}

fn checklist(bundle: &Bundle, recipe: &Recipe, (commit, tree): (Option<Oid>, Oid)) -> String {
    let ready = if bundle.missing().next().is_some() {
        "**Not ready.**"
    } else {
        "Ready for a person to send."
    };
    let commit = commit.map_or(String::new(), |commit| format!("commit `{commit}`, "));
    let mut text = format!(
        "# Checklist\n\n{ready} Branch `{}` in `mlx/`, on {commit}tree `{tree}`.\n\n",
        recipe.branch
    );
    for Point { what, missing } in &bundle.points {
        match missing {
            None => text += &format!("- [x] {what}\n"),
            Some(why) => text += &format!("- [ ] {what}: {why}\n"),
        }
    }
    text += "\nTo do by hand, because no command pushes, opens or answers anything:\n\n";
    if let Some(test) = &recipe.test {
        text += &format!(
            "- [ ] `python -m unittest {}` on the base and on the branch, in `mlx/python/tests`, on an Apple GPU\n",
            test.name
        );
    }
    text += "- [ ] `python3 python/tests/run.py` and `pre-commit run --all` on the branch\n\
         - [ ] an issue at upstream that the change answers\n\
         - [ ] a person who understands every line, and confirms it\n";
    text
}
