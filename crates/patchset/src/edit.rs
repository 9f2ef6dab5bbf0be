//! Edits patches as commits: [`open`] lays the series out in a git worktree, one commit a patch, with the files it adds;
//! [`export`] turns what a person made of it back into `patches/`, canonically.
//!
//! A commit's message is the patch's name, an empty line, and its header. Exporting what was just laid out changes not
//! one byte.

use std::collections::BTreeMap;

use camino::Utf8PathBuf;
use fs_err as fs;
use git2::{Commit, Delta, DiffOptions, Oid, Repository, RepositoryState, StatusOptions};
use serde::{Deserialize, Serialize};

use crate::bump::{Merged, fingerprint, merge};
use crate::error::{Error, Result};
use crate::fs as steps;
use crate::journal::{self, Changes};
use crate::lock::{Lock, hex};
use crate::manifest::Manifest;
use crate::patch::{self, Header, Patch};
use crate::progress::Progress;
use crate::series::{Series, is_patch_name};
use crate::source::{self, Request};
use crate::store::Store;
use crate::swap::Vendor;
use crate::tree::{File, Mode};
use crate::workbench::Workbench;
use crate::workspace::Workspace;

/// What a new commit's message begins with.
const TEMPLATE: &str = "\
name-of-the-patch

Subject: what it does, in a line
Why: what it is for
 (a line that begins with a space continues the field)
Upstream: where it stands upstream
Drop-When: what makes it unnecessary
Adds: none
Test: what shows that it works
";

/// `target/patches/state.toml`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    /// The project's files when the worktree was laid out or last exported.
    project: String,
    /// The pristine commit.
    #[serde(with = "hex")]
    pristine: Oid,
    /// The last commit that `patches/` knows.
    #[serde(with = "hex")]
    head: Oid,
    /// Patches that come after the one to edit; they are put onto it again by the export.
    #[serde(default)]
    later: Vec<String>,
}

/// A worktree to edit in.
#[derive(Debug, Clone)]
pub struct Opened {
    /// Where it lies.
    pub worktree: Utf8PathBuf,
    /// The patches in it, one commit each, in order.
    pub patches: Vec<String>,
    /// The patches that wait outside until the export.
    pub later: Vec<String>,
}

/// What an export changed.
#[derive(Debug, Clone)]
pub struct Exported {
    /// The series now.
    pub patches: Vec<String>,
    /// The files of the project that changed; none where the patches are what they were.
    pub changed: Vec<String>,
}

fn folder(workspace: &Workspace) -> Utf8PathBuf {
    workspace.root().join("target/patches")
}

/// Lays the series out, up to and with the patch `name`, or all of it.
///
/// # Errors
/// No such patch; a lock that does not belong to the patches; a worktree that holds work which was not exported, unless
/// `discard` says that it may go.
pub fn open(
    workspace: &Workspace,
    name: Option<&str>,
    discard: bool,
    progress: Progress<'_>,
) -> Result<Opened> {
    let _vendor = Vendor::lock(workspace, progress)?;
    let Project {
        series,
        store,
        base,
        ..
    } = Project::load(workspace, progress)?;
    let names: Vec<_> = series
        .patches
        .iter()
        .map(|patch| patch.name.clone())
        .collect();
    let count = match name {
        None => names.len(),
        Some(name) => match names.iter().position(|other| other == name) {
            Some(at) => at + 1,
            None => {
                return Err(Error::NoSuchPatch {
                    wanted: name.to_owned(),
                    known: names,
                });
            }
        },
    };
    let worktree = folder(workspace).join("worktree");
    if !discard {
        refuse_to_lose_work(workspace)?;
    }
    steps::remove_tree(&folder(workspace))?;

    let bench = Workbench::create(&worktree, &store)?;
    let resolved = series.resolve(bench.repo(), base)?;
    let pristine = bench.commit("MLX as it is pinned\n", base, None)?;
    let mut head = pristine;
    for (patch, tree) in series.patches.iter().zip(&resolved.trees).take(count) {
        head = bench.commit(&message(&patch.name, &patch.header), *tree, Some(head))?;
    }
    bench.check_out(head)?;
    bench.set_template(TEMPLATE)?;
    let later = names[count..].to_vec();
    let state = State {
        project: fingerprint(workspace)?,
        pristine,
        head,
        later: later.clone(),
    };
    state.save(workspace)?;
    Ok(Opened {
        worktree,
        patches: names[..count].to_vec(),
        later,
    })
}

/// Turns the commits of the worktree into `patches/`, and the lock with them.
///
/// # Errors
/// Nothing is laid out; `patches/` changed since; uncommitted changes; a merge or an empty commit; a message without a
/// header; an added binary; a later patch that no longer fits. Nothing is written then.
pub fn export(workspace: &Workspace, progress: Progress<'_>) -> Result<Exported> {
    let _vendor = Vendor::lock(workspace, progress)?;
    let mut state = State::load(workspace)?.ok_or(Error::NoEdit)?;
    if state.project != fingerprint(workspace)? {
        return Err(Error::EditStale);
    }
    let Project {
        manifest,
        lock,
        series: old,
        base,
        ..
    } = Project::load(workspace, progress)?;
    let bench = Workbench::open(&folder(workspace).join("worktree"))?;
    let repo = bench.repo();
    refuse_unfinished(repo)?;
    let commits = commits(repo, state.pristine)?;

    let mut edited = Edited {
        series: Series::default(),
        bytes: BTreeMap::new(),
        tree: base,
    };
    for commit in &commits {
        edited.add_commit(repo, commit)?;
    }
    let resolved = old.resolve(repo, base)?;
    for name in &state.later {
        edited.add_later(repo, &old, &resolved.trees, base, name)?;
    }
    let Edited {
        series,
        bytes,
        tree,
    } = edited;
    let resolved = series.resolve(repo, base)?;
    if resolved.final_tree() != tree {
        return Err(Error::TreeMismatch {
            expected: tree,
            found: resolved.final_tree(),
            difference: None,
        });
    }
    let lock = Lock::new(&manifest.mlx, lock.confirmed.clone(), &series, &resolved);
    let changes = changes(workspace, &old, &series, bytes, &lock)?;
    if !changes.is_empty() {
        journal::commit(workspace, &changes)?;
    }
    state.project = fingerprint(workspace)?;
    state.head = commits.last().map_or(state.pristine, Commit::id);
    state.save(workspace)?;
    Ok(Exported {
        patches: series
            .patches
            .iter()
            .map(|patch| patch.name.clone())
            .collect(),
        changed: changes.into_keys().collect(),
    })
}

/// What both need of the project.
struct Project {
    manifest: Manifest,
    lock: Lock,
    series: Series,
    store: Store,
    base: Oid,
}

impl Project {
    fn load(workspace: &Workspace, progress: Progress<'_>) -> Result<Self> {
        journal::recover(workspace)?;
        let manifest = Manifest::load(&workspace.manifest_path())?;
        let series = Series::load(&workspace.patches())?;
        let lock = Lock::load_for(&workspace.lock_path(), &manifest.mlx, &series)?;
        let store = Store::open(workspace)?;
        let request = Request {
            pin: &manifest.mlx,
            lock: Some(&lock),
            offline: false,
            refresh: false,
            source: None,
        };
        let base = source::fetch(workspace, &store, request, progress)?.tree;
        Ok(Self {
            manifest,
            lock,
            series,
            store,
            base,
        })
    }
}

impl State {
    fn load(workspace: &Workspace) -> Result<Option<Self>> {
        let file = folder(workspace).join("state.toml");
        file.exists()
            .then(|| crate::manifest::read_toml(&file))
            .transpose()
    }

    fn save(&self, workspace: &Workspace) -> Result<()> {
        let text = toml::to_string(self)
            .map_err(|error| Error::source("target/patches/state.toml", error))?;
        steps::replace(&folder(workspace).join("state.toml"), text.as_bytes())
    }
}

fn message(name: &str, header: &Header) -> String {
    format!("{name}\n\n{}\n", header.to_text().trim_end())
}

fn refuse_to_lose_work(workspace: &Workspace) -> Result<()> {
    let Some(state) = State::load(workspace)? else {
        return Ok(());
    };
    let worktree = folder(workspace).join("worktree");
    let Ok(repo) = Repository::open(&worktree) else {
        return Ok(());
    };
    let head = repo.head().ok().and_then(|head| head.target());
    if head == Some(state.head) && refuse_unfinished(&repo).is_ok() {
        return Ok(());
    }
    Err(Error::EditOpen(worktree))
}

/// The commits above the pristine one, oldest first.
fn commits(repo: &Repository, pristine: Oid) -> Result<Vec<Commit<'_>>> {
    let mut commits = Vec::new();
    let mut commit = repo.head()?.peel_to_commit()?;
    while commit.id() != pristine {
        let short = short(&commit);
        let parent = match commit.parent_count() {
            1 => commit.parent(0)?,
            0 => {
                return Err(Error::Edit(format!(
                    "commit {short} does not stand on the pristine commit {pristine}; rebase onto it"
                )));
            }
            _ => {
                return Err(Error::Edit(format!(
                    "commit {short} is a merge; a patch is one commit after another, so rebase instead"
                )));
            }
        };
        if parent.tree_id() == commit.tree_id() {
            return Err(Error::Edit(format!("commit {short} is empty; drop it")));
        }
        commits.push(commit);
        commit = parent;
    }
    commits.reverse();
    Ok(commits)
}

fn short(commit: &Commit<'_>) -> String {
    let id = commit.id().to_string();
    let subject = String::from_utf8_lossy(commit.summary_bytes().unwrap_or_default()).into_owned();
    format!("{} ({subject})", &id[..7])
}

/// A rebase, merge or cherry-pick under way, or changes that no commit holds.
fn refuse_unfinished(repo: &Repository) -> Result<()> {
    if repo.state() != RepositoryState::Clean {
        return Err(Error::Edit(
            "a rebase, merge or cherry-pick is under way in the worktree; finish it".to_owned(),
        ));
    }
    let mut options = StatusOptions::new();
    options
        .include_untracked(true)
        .recurse_untracked_dirs(true)
        .include_ignored(false);
    let statuses = repo.statuses(Some(&mut options))?;
    if statuses.is_empty() {
        return Ok(());
    }
    let paths: Vec<_> = statuses
        .iter()
        .map(|entry| String::from_utf8_lossy(entry.path_bytes()).into_owned())
        .collect();
    Err(Error::Edit(format!(
        "no commit holds the changes of {}; commit or remove them",
        paths.join(", ")
    )))
}

/// The series in the making.
struct Edited {
    series: Series,
    bytes: BTreeMap<String, Vec<u8>>,
    tree: Oid,
}

impl Edited {
    fn add_commit(&mut self, repo: &Repository, commit: &Commit<'_>) -> Result<()> {
        let fail = |reason: String| Err(Error::Edit(format!("commit {}: {reason}", short(commit))));
        let text = std::str::from_utf8(commit.message_raw_bytes()).unwrap_or_default();
        let (name, header) = text.split_once("\n\n").unwrap_or((text.trim_end(), ""));
        if !is_patch_name(name) {
            return fail(format!(
                "expected the patch's name (a-z, 0-9 and -) as the first line of the message, found {name:?}"
            ));
        }
        if self.bytes.contains_key(name) {
            return fail(format!(
                "{name} is there already; squash the two, or give one another name"
            ));
        }
        let header = match Header::parse(name, &format!("{}\n\n", header.trim_end())) {
            Ok(header) => header,
            Err(error) => return fail(format!("its message is no header of a patch: {error}")),
        };
        let tree = commit.tree_id();
        let adds = match self.added(repo, tree)? {
            Ok(adds) => adds,
            Err(reason) => return fail(reason),
        };
        let header = keep_order(header, adds);
        self.push(repo, name, &header, tree)
    }

    /// The files that the commit adds. Everything else it does must be an edit of a text file of upstream's.
    fn added(&self, repo: &Repository, tree: Oid) -> Result<Result<Vec<String>, String>> {
        let (old, new) = (repo.find_tree(self.tree)?, repo.find_tree(tree)?);
        let mut options = DiffOptions::new();
        let diff =
            repo.diff_tree_to_tree(Some(&old), Some(&new), Some(options.force_binary(false)))?;
        let mut adds = Vec::new();
        for delta in diff.deltas() {
            let path = String::from_utf8_lossy(delta.new_file().path_bytes().unwrap_or_default())
                .into_owned();
            let is_binary = match repo.find_blob(delta.new_file().id()) {
                Ok(blob) => blob.is_binary(),
                Err(_) => false,
            };
            if is_binary {
                return Ok(Err(format!(
                    "{path} is binary; a patch and the files it adds are text"
                )));
            }
            if delta.status() == Delta::Added {
                adds.push(path);
            } else if self.series.files.contains_key(&path) {
                return Ok(Err(format!(
                    "it edits {path}, which an earlier patch adds; do it in that patch's commit"
                )));
            }
        }
        Ok(Ok(adds))
    }

    /// Puts a patch of the old series onto what is there now.
    fn add_later(
        &mut self,
        repo: &Repository,
        old: &Series,
        trees: &[Oid],
        base: Oid,
        name: &str,
    ) -> Result<()> {
        let Some(at) = old.patches.iter().position(|patch| patch.name == *name) else {
            return Err(Error::EditStale);
        };
        if self.bytes.contains_key(name) {
            return Err(Error::Edit(format!(
                "{name} comes after the patch that is edited; give the new one another name"
            )));
        }
        let parent = at.checked_sub(1).map_or(base, |before| trees[before]);
        let tree = match merge(repo, name, parent, trees[at], self.tree)? {
            Merged::Tree(tree) if tree == self.tree => {
                return Err(Error::Edit(format!(
                    "nothing is left of {name}, which comes later; lay out all patches with `cargo xtask patch edit --discard` and drop it there"
                )));
            }
            Merged::Tree(tree) => tree,
            Merged::Conflicts(conflicts) => {
                let paths: Vec<_> = conflicts
                    .into_iter()
                    .map(|conflict| conflict.path)
                    .collect();
                return Err(Error::Edit(format!(
                    "{name}, which comes later, no longer fits in {}; lay out all patches with `cargo xtask patch edit` and rebase there",
                    paths.join(", ")
                )));
            }
        };
        self.push(repo, name, &old.patches[at].header, tree)
    }

    fn push(&mut self, repo: &Repository, name: &str, header: &Header, tree: Oid) -> Result<()> {
        let adds: Vec<_> = header.adds().collect();
        let bytes = patch::export(repo, name, header, self.tree, tree, &adds)?;
        let patch = Patch::parse(name, &bytes)?;
        self.series.take_files(repo, &patch, tree)?;
        self.series.patches.push(patch);
        self.bytes.insert(name.to_owned(), bytes);
        self.tree = tree;
        Ok(())
    }
}

/// The header with these added files; in the order that it had, new ones last.
fn keep_order(header: Header, mut adds: Vec<String>) -> Header {
    let known: Vec<_> = header.adds().map(str::to_owned).collect();
    let place = |path: &String| {
        known
            .iter()
            .position(|known| known == path)
            .unwrap_or(known.len())
    };
    adds.sort_by(|one, other| place(one).cmp(&place(other)).then_with(|| one.cmp(other)));
    header.with_adds(adds)
}

fn changes(
    workspace: &Workspace,
    old: &Series,
    new: &Series,
    bytes: BTreeMap<String, Vec<u8>>,
    lock: &Lock,
) -> Result<Changes> {
    let mut changes = Changes::new();
    let mut text = |path: String, bytes: Vec<u8>| -> Result<()> {
        let file = workspace.root().join(&path);
        if !file.exists() || fs::read(&file)? != bytes {
            changes.insert(
                path,
                Some(File {
                    mode: Mode::Regular,
                    bytes,
                }),
            );
        }
        Ok(())
    };
    for (name, bytes) in bytes {
        text(format!("patches/{name}.patch"), bytes)?;
    }
    text("mlx.lock".to_owned(), lock.to_text()?.into_bytes())?;
    let names = |series: &Series| {
        series
            .patches
            .iter()
            .map(|patch| patch.name.clone())
            .collect::<Vec<_>>()
    };
    if names(old) != names(new) {
        let before = fs::read_to_string(workspace.patches().join("series"))?;
        text(
            "patches/series".to_owned(),
            series_text(&before, &names(new)).into_bytes(),
        )?;
    }
    for (path, (entry, file)) in &new.files {
        if old
            .files
            .get(path)
            .is_none_or(|(before, _)| before != entry)
        {
            changes.insert(format!("patches/files/{path}"), Some(file.clone()));
        }
    }
    let gone = old
        .files
        .keys()
        .filter(|path| !new.files.contains_key(*path))
        .map(|path| format!("patches/files/{path}"));
    let dropped = old
        .patches
        .iter()
        .filter(|patch| new.patches.iter().all(|other| other.name != patch.name));
    let dropped = dropped.map(|patch| format!("patches/{}.patch", patch.name));
    changes.extend(gone.chain(dropped).map(|path| (path, None)));
    Ok(changes)
}

/// The names in a new order; the comments at the top stay, and so does what stands behind a name.
fn series_text(before: &str, names: &[String]) -> String {
    let name_of = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
    let top = before
        .lines()
        .take_while(|line| name_of(line).is_empty())
        .map(str::to_owned);
    let line = |name: &String| {
        before
            .lines()
            .find(|line| name_of(line) == *name)
            .map_or_else(|| name.clone(), str::to_owned)
    };
    top.chain(names.iter().map(line))
        .map(|line| format!("{line}\n"))
        .collect()
}
