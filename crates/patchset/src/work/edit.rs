//! Edits patches as commits: [`open`] lays out the series in a git worktree, one commit per patch, with the files it
//! adds; [`export`] turns a person's changes back into canonical `patches/`.
//!
//! A commit's message is the patch's name, an empty line, and its header. Exporting an unchanged worktree changes not
//! one byte.

use camino::Utf8PathBuf;
use git2::{Commit, Delta, DiffOptions, Oid, Repository, RepositoryState, StatusOptions};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::model::patch::Header;
use crate::model::series::{Resolved, Series, is_patch_name};
use crate::place::journal;
use crate::place::workspace::Workspace;
use crate::progress::Progress;
use crate::project::{Project, fingerprint};
use crate::read::hex;
use crate::sources::store::Store;
use crate::work::memory::Memory;
use crate::work::merge::{Clashes, Merged, merge};
use crate::work::rewrite::{Rewritten, added_by, with_adds};
use crate::work::workbench::{BRANCH, Desk, Workbench};

/// The start of a new commit's message.
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
    /// A fingerprint of the project's files when the worktree was laid out or last exported.
    project: String,
    /// The pristine commit.
    #[serde(with = "hex")]
    pristine: Oid,
    /// The last commit that is in `patches/`.
    #[serde(with = "hex")]
    head: Oid,
    /// Patches after the one to edit; the export rebases them onto it.
    #[serde(default)]
    later: Vec<String>,
    /// Those of them for which an interrupted export may have made commits.
    #[serde(default)]
    laid_out: Vec<String>,
}

/// A worktree to edit in.
#[derive(Debug, Clone)]
pub struct Opened {
    pub worktree: Utf8PathBuf,
    /// The patches in it, in order, one commit each.
    pub patches: Vec<String>,
    /// The patches that wait outside until the export.
    pub later: Vec<String>,
}

/// The result of an export.
#[derive(Debug, Clone)]
pub struct Exported {
    /// The series now.
    pub patches: Vec<String>,
    /// The files of the project that changed; empty if the patches have not changed.
    pub changed: Vec<String>,
}

fn desk(workspace: &Workspace) -> Desk {
    Desk::below_target(workspace, "patches")
}

/// Lays out the series up to and including the patch `name`, or all of it.
///
/// # Errors
/// No such patch; a lock that does not match the patches; a worktree with work that was not exported, unless `discard`
/// allows losing it.
pub fn open(
    workspace: &Workspace,
    name: Option<&str>,
    discard: bool,
    progress: Progress<'_>,
) -> Result<Opened> {
    let (_vendor, project) = Project::open_to_change(workspace, progress)?;
    project.lock()?;
    let series = &project.series;
    let store = Store::open(workspace)?;
    let base = project.fetch_base(&store, false, progress)?;
    let names = series.names();
    let count = match name {
        None => names.len(),
        Some(name) => series.position(name)? + 1,
    };
    let desk = desk(workspace);
    if !discard {
        refuse_to_lose_work(&desk)?;
    }
    let later = names[count..].to_vec();
    desk.renew(|worktree| {
        let bench = Workbench::create(worktree, &store)?;
        let resolved = series.resolve(bench.repo(), base)?;
        let pristine = bench.commit("MLX as it is pinned\n", base, None)?;
        let mut head = pristine;
        for (patch, tree) in series.patches.iter().zip(&resolved.trees).take(count) {
            head = bench.commit(&message(&patch.name, &patch.header), *tree, Some(head))?;
        }
        bench.check_out(BRANCH, head)?;
        bench.set_template(TEMPLATE)?;
        Ok(State {
            project: fingerprint(workspace)?,
            pristine,
            head,
            later: later.clone(),
            laid_out: Vec::new(),
        })
    })?;
    Ok(Opened {
        worktree: desk.worktree(),
        patches: names[..count].to_vec(),
        later,
    })
}

/// Turns the commits of the worktree into `patches/` and updates the lock. A later patch that no longer fits is laid
/// out in the worktree as a conflict. `drop_empty` removes later patches without changes.
///
/// # Errors
/// Nothing is laid out; `patches/` changed since; uncommitted changes; a merge or an empty commit; a message without a
/// header; an added binary; a later patch that no longer fits. In these cases `patches/` is not written.
pub fn export(workspace: &Workspace, drop_empty: bool, progress: Progress<'_>) -> Result<Exported> {
    let (_vendor, project) = Project::open_to_change(workspace, progress)?;
    let desk = desk(workspace);
    desk.recover()?;
    let mut state: State = desk.load()?.ok_or(Error::NoEdit)?;
    if state.project != fingerprint(workspace)? {
        return Err(Error::EditStale);
    }
    let lock = project.lock()?;
    let store = Store::open(workspace)?;
    let base = project.fetch_base(&store, false, progress)?;
    if !desk.worktree().join(".git").exists() {
        return Err(Error::NoEdit);
    }
    let bench = Workbench::open(&desk.worktree())?;
    let repo = bench.repo();
    refuse_unfinished(repo)?;
    let commits = commits(repo, state.pristine)?;

    let mut edited = Edited(Rewritten::new(base));
    for commit in &commits {
        edited.add_commit(repo, commit)?;
    }
    let resolved = project.series.resolve(repo, base)?;
    let mut put = Vec::new();
    for (at, name) in state.later.iter().enumerate() {
        let is_commit = edited.0.has_patch(name);
        if is_commit && state.laid_out.contains(name) {
            continue;
        }
        match edited.add_later(repo, &project.series, &resolved, name)? {
            Later::Fits => put.push((name.clone(), edited.0.tree())),
            Later::Empty if drop_empty => {}
            Later::Empty => return Err(Error::LaterEmpty(name.clone())),
            Later::Clashes(clashes) => {
                let (before, after) = resolved.around(project.series.position(name)?);
                let begun = Begun {
                    series: &project.series,
                    put: &put,
                    name,
                    change: (before, after),
                };
                let worktree = desk.worktree();
                let (patch, later) = (name.clone(), state.later[at + 1..].to_vec());
                state.laid_out = state.later[..=at].to_vec();
                desk.save(&state)?;
                lay_out(&bench, &begun)?;
                // From here on they belong to the person.
                (state.later, state.laid_out) = (later, Vec::new());
                desk.save(&state)?;
                return Err(Error::LaterConflict {
                    patch,
                    paths: clashes
                        .conflicts()
                        .into_iter()
                        .map(|one| one.path)
                        .collect(),
                    worktree,
                });
            }
        }
    }
    let patches = edited.0.names();
    let pin = &project.manifest.mlx;
    let changes = edited
        .0
        .changes(&project, repo, pin, lock.verdict_for(pin))?;
    if !changes.is_empty() {
        journal::commit(workspace, &changes)?;
    }
    state.later.retain(|name| patches.contains(name));
    state.project = fingerprint(workspace)?;
    state.head = commits.last().map_or(state.pristine, Commit::id);
    desk.save(&state)?;
    Ok(Exported {
        patches,
        changed: changes.into_keys().collect(),
    })
}

/// A later patch that does not fit, and the earlier ones that do.
struct Begun<'a> {
    series: &'a Series,
    /// Name and tree.
    put: &'a [(String, Oid)],
    name: &'a str,
    /// The trees before and after it in the old series.
    change: (Oid, Oid),
}

/// Adds commits for the later patches that fit, and begins the next one as a cherry-pick.
fn lay_out(bench: &Workbench, begun: &Begun<'_>) -> Result<()> {
    let message = |name: &str| {
        let patch = &begun.series.patches[begun.series.position(name)?];
        Ok::<_, Error>(message(name, &patch.header))
    };
    let mut head = bench.repo().head()?.peel_to_commit()?.id();
    for (name, tree) in begun.put {
        head = bench.commit(&message(name)?, *tree, Some(head))?;
    }
    let (before, after) = begun.change;
    let parent = bench.commit("The patches before this one, as they were\n", before, None)?;
    let theirs = bench.commit(&message(begun.name)?, after, Some(parent))?;
    bench.advance(head)?;
    bench.cherry_pick(theirs, "the edited patches", begun.name, "as it was")
}

fn message(name: &str, header: &Header) -> String {
    format!("{name}\n\n{}\n", header.to_text().trim_end())
}

fn refuse_to_lose_work(desk: &Desk) -> Result<()> {
    let Some(state) = desk.load::<State>()? else {
        return Ok(());
    };
    let worktree = desk.worktree();
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
                    "commit {short} is not based on the pristine commit {pristine}; rebase it"
                )));
            }
            _ => {
                return Err(Error::Edit(format!(
                    "commit {short} is a merge; patches are a linear sequence of commits, so rebase instead"
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

/// An unfinished rebase, merge or cherry-pick, or uncommitted changes.
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
        "no commit has the changes of {}; commit or remove them",
        paths.join(", ")
    )))
}

/// The fate of a later patch.
enum Later {
    Fits,
    /// It has no changes left.
    Empty,
    Clashes(Clashes),
}

/// The series according to the commits.
struct Edited(Rewritten);

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
        if self.0.has_patch(name) {
            return fail(format!(
                "{name} already exists; squash the two, or give one another name"
            ));
        }
        let header = match Header::parse(name, &format!("{}\n\n", header.trim_end())) {
            Ok(header) => header,
            Err(error) => return fail(format!("its message is not a patch header: {error}")),
        };
        let tree = commit.tree_id();
        let adds = match self.added(repo, tree)? {
            Ok(adds) => adds,
            Err(reason) => return fail(reason),
        };
        let header = with_adds(&header, adds);
        self.0.push(repo, name, &header, tree)
    }

    /// The files that the commit adds. All its other changes must be edits of upstream's text files.
    fn added(&self, repo: &Repository, tree: Oid) -> Result<Result<Vec<String>, String>> {
        let (old, new) = (repo.find_tree(self.0.tree())?, repo.find_tree(tree)?);
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
                    "{path} is binary, but patches and the files they add must be text"
                )));
            }
            if delta.status() == Delta::Added {
                adds.push(path);
            } else if self.0.adds(&path) {
                return Ok(Err(format!(
                    "it edits {path}, which an earlier patch adds; edit it in that patch's commit"
                )));
            }
        }
        Ok(Ok(adds))
    }

    /// Rebases a patch of the old series onto the current tree.
    fn add_later(
        &mut self,
        repo: &Repository,
        old: &Series,
        resolved: &Resolved,
        name: &str,
    ) -> Result<Later> {
        let at = old.position(name).map_err(|_| Error::EditStale)?;
        if self.0.has_patch(name) {
            return Err(Error::Edit(format!(
                "{name} comes after the patch that is edited; give the new one another name"
            )));
        }
        let (before, after) = resolved.around(at);
        let nothing = Memory::default();
        let tree = match merge(repo, &nothing, name, before, after, self.0.tree())? {
            Merged::Tree(tree) if tree == self.0.tree() => return Ok(Later::Empty),
            Merged::Tree(tree) => tree,
            Merged::Clashes(clashes) => return Ok(Later::Clashes(clashes)),
        };
        let header = added_by(repo, &old.patches[at].header, self.0.tree(), tree)?;
        self.0.push(repo, name, &header, tree)?;
        Ok(Later::Fits)
    }
}
