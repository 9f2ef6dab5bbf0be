//! Moves the pin: fetches the new MLX, rebases every patch onto it by a 3-way merge, and changes pin, lock and patches
//! together, last. A conflict stops before anything is written and leaves a worktree in which a person resolves it.

mod fate;
mod history;
mod pending;
mod pin;
mod rebase;
mod report;
mod target;

use std::collections::{BTreeMap, BTreeSet};

use camino::Utf8PathBuf;
use git2::{Oid, Repository};

use crate::error::{Error, Result};
use crate::model::manifest::Manifest;
use crate::place::disk;
use crate::place::journal::{self, Changes};
use crate::place::vendor::Vendor;
use crate::place::workspace::Workspace;
use crate::progress::{Event, Progress};
use crate::project::{Project, fingerprint};
use crate::sources::store::Store;
use crate::state::{self, State};
use crate::tree::{File, Listing, Mode};
use crate::watch;
use crate::work::hunks;
use crate::work::renames::{Old, Renames};
use crate::work::rewrite::{Rewritten, added_by};
use crate::work::workbench::Workbench;

use pending::{Choices, Decided, Pending, ResolvedPatch, Stop, desk};
use rebase::{Rebased, point_at_alike, rebase};
use target::Target;

pub use crate::work::hunks::Hunk;
pub use crate::work::merge::{Conflict, Place};
pub use fate::{Fate, Moved, MovedHunk, When};
pub use pending::{Waiting, waiting};
pub use report::{FileChange, FileReport, PatchReport, PinName, Report};
pub use target::Options;

/// The folder of the summaries in the project. They are committed.
const SUMMARIES: &str = "docs/pin-moves";

/// The result of a bump.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Pin, lock and patches are changed.
    Done,
    /// It would succeed.
    DryRun,
    /// These patches have no changes left; nothing was written, because dropping them was not requested.
    Absorbed {
        names: Vec<String>,
        /// Whether the bump waits: it had stopped before, and continues from there.
        waits: bool,
    },
    /// This patch does not fit; nothing was written.
    Conflict {
        patch: String,
        /// The worktree in which a person resolves it; `None` in a dry run.
        worktree: Option<Utf8PathBuf>,
    },
}

/// A bump in progress.
struct Bump {
    project: Project,
    store: Store,
    /// The pinned tree before.
    base: Oid,
    /// Held until the end.
    _vendor: Vendor,
}

/// Moves the pin, as far as possible without a person.
///
/// # Errors
/// A bump that waits for a person; `vendor/mlx` edited by hand; a lock that does not match the patches; no source
/// provides the new pin.
pub fn start(
    workspace: &Workspace,
    options: &Options,
    progress: Progress<'_>,
) -> Result<(Report, Outcome)> {
    let bump = Bump::begin(workspace, options.offline, progress)?;
    if let Some(pending) = Pending::load(workspace)? {
        return Err(Error::BumpPending {
            patch: pending.patch,
            worktree: desk(workspace).worktree(),
        });
    }
    let mut target = target::find(&bump.project, &bump.store, options, progress)?;
    target.follow(&Renames::between(
        bump.store.repo(),
        bump.base,
        target.tree,
    )?)?;
    let choices = Choices {
        drop_absorbed: options.drop_absorbed,
        ..Choices::default()
    };
    let ending = if options.dry_run {
        Ending::DryRun
    } else {
        Ending::Begin
    };
    bump.go(&target, choices, ending, progress)
}

/// Uses what a person resolved in the worktree, and continues. `drop_absorbed` removes patches without changes from the
/// series.
///
/// # Errors
/// No bump waits; the project changed since it stopped; markers or stray files are left in the worktree.
pub fn resume(
    workspace: &Workspace,
    drop_absorbed: bool,
    progress: Progress<'_>,
) -> Result<(Report, Outcome)> {
    let (bump, mut pending) = Bump::again(workspace, progress)?;
    bump.lay_out_again(&pending)?;
    let decided = bump.decided(&pending)?;
    decided.remember(workspace)?;
    pending.choices.resolved.push(ResolvedPatch {
        tree: bump.store.insert(&decided.snapshot, &decided.listing)?,
        name: pending.patch,
    });
    pending.choices.drop_absorbed |= drop_absorbed;
    bump.go(&pending.target, pending.choices, Ending::GoOn, progress)
}

/// Undoes the last resolution, of this bump or an earlier one: its patch waits again, with the resolution in its files.
/// Returns the patch and its worktree.
///
/// If the current conflict is resolved in the worktree, the resolution is remembered as far as possible. Otherwise the
/// worktree must not be edited, unless `discard` allows losing it.
///
/// # Errors
/// No bump waits, or nothing was resolved in it; the project changed since it stopped.
pub fn back(
    workspace: &Workspace,
    discard: bool,
    progress: Progress<'_>,
) -> Result<(String, Utf8PathBuf)> {
    let (bump, pending) = Bump::again(workspace, progress)?;
    bump.go_back(pending, discard)
}

/// Aborts a bump that waits for a person. The project was not touched, so only the worktree is removed.
///
/// # Errors
/// No bump waits.
pub fn abort(workspace: &Workspace, progress: Progress<'_>) -> Result<()> {
    let _vendor = Vendor::lock(workspace, progress)?;
    let desk = desk(workspace);
    desk.recover()?;
    // In any state: an unreadable bump must not stay forever.
    if !desk.is_laid_out() {
        return Err(Error::NoBump);
    }
    desk.clear()
}

/// The work at the end of a bump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    DryRun,
    Begin,
    GoOn,
}

impl Bump {
    fn begin(workspace: &Workspace, offline: bool, progress: Progress<'_>) -> Result<Self> {
        let (vendor, project) = Project::open_to_change(workspace, progress)?;
        let found = state::inspect(workspace, project.lock()?, &project.series)?;
        if let State::Tampered(paths) = found.state {
            return Err(Error::Tampered(Box::new(paths)));
        }
        let store = Store::open(workspace)?;
        let base = project.fetch_base(&store, offline, progress)?;
        Ok(Self {
            project,
            store,
            base,
            _vendor: vendor,
        })
    }

    /// The bump that waits.
    fn again(workspace: &Workspace, progress: Progress<'_>) -> Result<(Self, Pending)> {
        let bump = Self::begin(workspace, true, progress)?;
        let pending = Pending::load(workspace)?.ok_or(Error::NoBump)?;
        if pending.project != fingerprint(workspace)? {
            return Err(Error::BumpStale);
        }
        let trees = pending.choices.resolved.iter().map(|one| one.tree);
        let mut trees = trees.chain([pending.target.tree]);
        if trees.any(|tree| !bump.has(tree)) {
            return Err(Error::BumpCleared);
        }
        Ok((bump, pending))
    }

    /// Whether the cache or the worktree has a tree.
    fn has(&self, tree: Oid) -> bool {
        let bench = Workbench::open(&desk(self.workspace()).worktree());
        self.store.repo().find_tree(tree).is_ok()
            || bench.is_ok_and(|bench| bench.repo().find_tree(tree).is_ok())
    }

    fn workspace(&self) -> &Workspace {
        &self.project.workspace
    }

    /// The series on the old base, with the new pin's paths.
    fn old(&self, repo: &Repository, new: Oid) -> Result<Old> {
        Old::new(repo, &self.project.series, self.base, new)
    }

    fn go(
        &self,
        target: &Target,
        choices: Choices,
        ending: Ending,
        progress: Progress<'_>,
    ) -> Result<(Report, Outcome)> {
        progress(Event::Working("rebasing the patches onto the new pin"));
        let repo = self.store.overlay()?;
        let old = self.old(&repo, target.tree)?;
        let mut rebased = rebase(&repo, &self.project, &old, target.tree, &choices)?;
        point_at_alike(&repo, (self.base, target.tree), &mut rebased.fates)?;
        let report = self.report(&repo, &old, target, &rebased)?;

        let file = self.workspace().root().join(report.file());
        file.parent().map_or(Ok(()), disk::create_dir_all)?;
        disk::replace(&file, report.to_markdown().as_bytes())?;
        let empty: Vec<_> = report.empty().map(|patch| patch.name.clone()).collect();
        let outcome = if let Some(at) = rebased.stopped {
            let patch = self.project.series.patches[at].name.clone();
            let worktree = match ending {
                Ending::DryRun => None,
                _ => Some(self.wait(target, at, choices, None)?),
            };
            Outcome::Conflict { patch, worktree }
        } else if !empty.is_empty() && !choices.drop_absorbed {
            Outcome::Absorbed {
                names: empty,
                waits: ending == Ending::GoOn,
            }
        } else {
            let changes = self.changes(&repo, target, &old.renames, &rebased, &report)?;
            if ending == Ending::DryRun {
                Outcome::DryRun
            } else {
                journal::commit(self.workspace(), &changes)?;
                desk(self.workspace()).clear()?;
                Outcome::Done
            }
        };
        Ok((report, outcome))
    }

    /// The position of the patch that waits.
    fn position(&self, pending: &Pending) -> Result<usize> {
        let found = self.project.series.position(&pending.patch);
        found.map_err(|_| Error::BumpStale)
    }

    /// Makes a worktree again that someone deleted.
    fn lay_out_again(&self, pending: &Pending) -> Result<()> {
        let worktree = desk(self.workspace()).worktree();
        if worktree.join(".git").exists() {
            return Ok(());
        }
        let at = self.position(pending)?;
        let worktree = self.wait(&pending.target, at, pending.choices.clone(), None)?;
        Err(Error::Unresolved {
            worktree,
            faults: vec!["it was missing, and has been laid out again".to_owned()],
        })
    }

    /// The result of a person's work on the patch that waits.
    fn decided(&self, pending: &Pending) -> Result<Decided> {
        let at = self.position(pending)?;
        let patch = &self.project.series.patches[at];
        let bench = Workbench::open(&desk(self.workspace()).worktree())?;
        let old = self.old(bench.repo(), pending.target.tree)?;
        let change = old.around(bench.repo(), at)?;
        pending.decided(self.workspace(), &bench, patch, change)
    }

    /// Whether removing the worktree would lose nothing.
    fn is_kept(&self, pending: &Pending) -> Result<bool> {
        let worktree = desk(self.workspace()).worktree();
        if !worktree.exists() {
            return Ok(true);
        }
        let found = Listing::of_dir(&worktree)?.tree_id()?;
        if [pending.laid_out, pending.onto].contains(&found) {
            return Ok(true);
        }
        match self.decided(pending) {
            Ok(decided) => decided.remember(self.workspace()),
            Err(Error::Unresolved { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn go_back(&self, pending: Pending, discard: bool) -> Result<(String, Utf8PathBuf)> {
        let names = self.project.series.names();
        let repo = self.store.overlay()?;
        let Pending {
            target, choices, ..
        } = &pending;
        let old = self.old(&repo, target.tree)?;
        let rebased = rebase(&repo, &self.project, &old, target.tree, choices)?;
        let before = &rebased.fates[..self.position(&pending)?];
        let Some(at) = before.iter().rposition(Fate::is_decided) else {
            return Err(Error::NothingDecided(pending.patch));
        };
        if !discard && !self.is_kept(&pending)? {
            return Err(Error::BumpEdited {
                patch: pending.patch,
                worktree: desk(self.workspace()).worktree(),
            });
        }
        let Pending {
            target,
            mut choices,
            ..
        } = pending;
        choices.resolved.retain(|one| one.name != names[at]);
        choices.again.push(names[at].clone());
        let worktree = self.wait(&target, at, choices, Some(rebased.trees[at]))?;
        Ok((names[at].clone(), worktree))
    }

    /// Lays out the worktree for the patch that does not fit, with these files if a person resolved them before.
    fn wait(
        &self,
        target: &Target,
        at: usize,
        choices: Choices,
        decided: Option<Oid>,
    ) -> Result<Utf8PathBuf> {
        let desk = desk(self.workspace());
        let patches = &self.project.series.patches;
        desk.renew(|worktree| {
            let bench = Workbench::create(worktree, &self.store)?;
            let repo = bench.repo();
            // Again, so that the objects are in the worktree's own repository.
            let old = self.old(repo, target.tree)?;
            let rebased = rebase(repo, &self.project, &old, target.tree, &choices)?;
            let mut onto = rebased.left(&self.project.series.names());
            onto.retain(|(name, _)| patches[..at].iter().any(|patch| patch.name == *name));
            let stop = Stop {
                target,
                patches,
                change: old.around(repo, at)?,
                at,
                onto: &onto,
                memory: &choices.memory(self.workspace(), &patches[at].name),
            };
            pending::lay_out(&bench, &stop)?;
            if let Some(tree) = decided {
                bench.put_files(tree)?;
            }
            Ok(Pending {
                project: fingerprint(self.workspace())?,
                patch: patches[at].name.clone(),
                onto: onto.last().map_or(target.tree, |(_, tree)| *tree),
                laid_out: Listing::of_dir(worktree)?.tree_id()?,
                target: target.clone(),
                choices,
            })
        })?;
        Ok(desk.worktree())
    }

    fn report(
        &self,
        repo: &Repository,
        old: &Old,
        target: &Target,
        rebased: &Rebased,
    ) -> Result<Report> {
        let Manifest { mlx, watch, .. } = &self.project.manifest;
        let patches = self
            .project
            .series
            .patches
            .iter()
            .zip(rebased.fates.iter().zip(&rebased.depends))
            .map(|(patch, (fate, depends))| PatchReport {
                name: patch.name.clone(),
                subject: patch.header.subject().to_owned(),
                fate: fate.clone(),
                depends: *depends && !matches!(fate, Fate::Conflict(_)),
                drop_when: patch.header.field("Drop-When").join(" "),
            });
        let files = self.files(repo, old, target.tree)?;
        let patched = files.iter().map(|file| file.path.as_str());
        let paths: BTreeSet<_> = patched
            .chain(watch.iter().map(|entry| entry.file.as_str()))
            .flat_map(|path| [path, old.renames.new_path(path)])
            .collect();
        let commits = match &target.history {
            Some(folder) => history::commits(folder, self.base, target.tree, &paths)?,
            None => None,
        };
        let last = rebased.trees.last().copied();
        Ok(Report {
            from: PinName::new(mlx, self.base),
            to: PinName::new(&target.pin()?, target.tree),
            source: target.source_for_others(),
            unknown_to_others: target.only_here,
            patches: patches.collect(),
            files,
            commits,
            watched: watch::compare(repo, self.base, target.tree, watch, &old.renames)?,
            final_tree: rebased
                .stopped
                .is_none()
                .then_some(last.unwrap_or(target.tree)),
        })
    }

    fn files(&self, repo: &Repository, old: &Old, new: Oid) -> Result<Vec<FileReport>> {
        let mut edited: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for patch in &self.project.series.patches {
            for edit in &patch.edits {
                edited
                    .entry(&edit.path)
                    .or_default()
                    .push(patch.name.clone());
            }
        }
        let base = old.base(repo)?;
        let changes = hunks::between(repo, base, new, 0)?;
        let (base, new) = (repo.find_tree(base)?, repo.find_tree(new)?);
        let files = edited.into_iter().map(|(path, patches)| {
            let now = old.renames.new_path(path);
            let mode = |tree: &git2::Tree<'_>| Some(tree.get_path(now.as_ref()).ok()?.filemode());
            let change = match hunks::counts(&changes, now) {
                _ if mode(&new).is_none() => FileChange::Gone,
                (0, 0) if mode(&base) != mode(&new) => FileChange::Mode,
                (0, 0) => FileChange::Same,
                (added, removed) => FileChange::Edited { added, removed },
            };
            FileReport {
                path: path.to_owned(),
                renamed_to: (now != path).then(|| now.to_owned()),
                patches,
                change,
            }
        });
        Ok(files.collect())
    }

    /// The project's files after the bump.
    fn changes(
        &self,
        repo: &Repository,
        target: &Target,
        renames: &Renames,
        rebased: &Rebased,
        report: &Report,
    ) -> Result<Changes> {
        let series = &self.project.series;
        let mut rewritten = Rewritten::new(target.tree);
        for (name, tree) in rebased.left(&series.names()) {
            let header = &series.patches[series.position(&name)?].header;
            // Files that upstream has by now are no longer added; files that a person added instead are.
            let header = added_by(repo, header, rewritten.tree(), tree)?;
            rewritten.push(repo, &name, &header, tree)?;
        }
        let verdict = target.verdict();
        let mut changes = rewritten.changes(&self.project, repo, &target.pin()?, verdict)?;
        let mut write = |path: String, text: String| {
            let file = File {
                mode: Mode::Regular,
                bytes: text.into_bytes(),
            };
            changes.insert(path, Some(file));
        };
        write("mlx.toml".to_owned(), target.manifest.clone());
        write(
            format!("{SUMMARIES}/{}", report.file_name()),
            report.summary(),
        );
        if let Some(text) = watch::follow(self.workspace(), renames)? {
            write("patches/watched.toml".to_owned(), text);
        }
        Ok(changes)
    }
}
