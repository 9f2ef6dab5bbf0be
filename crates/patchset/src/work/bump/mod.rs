//! Moves the pin: fetches the new MLX, puts every patch onto it by a 3-way merge, and changes pin, lock and patches
//! together, last. A conflict stops before anything is written and leaves a worktree for a person to decide in.

mod fate;
mod history;
mod pending;
mod pin;
mod report;
mod target;

use std::collections::BTreeMap;

use camino::Utf8PathBuf;
use git2::{Oid, Repository};

use crate::error::{Error, Result};
use crate::model::series::Resolved;
use crate::place::journal::{self, Changes};
use crate::place::vendor::Vendor;
use crate::place::workspace::Workspace;
use crate::progress::{Event, Progress};
use crate::project::{Project, fingerprint};
use crate::sources::store::Store;
use crate::state::{self, State};
use crate::tree::{File, Mode};
use crate::watch;
use crate::work::hunks;
use crate::work::merge::{Merged, merge};
use crate::work::rewrite::Rewritten;
use crate::work::workbench::Workbench;

use fate::fate;
use pending::{Pending, Stop, desk};
use target::Target;

pub use crate::work::hunks::Hunk;
pub use crate::work::merge::{Conflict, Place};
pub use fate::{Fate, Moved, MovedHunk};
pub use report::{FileChange, FileReport, PatchReport, PinName, Report};
pub use target::Options;

/// The folder of the reports, in the project.
const REPORTS: &str = "docs/pin-moves";

/// How a bump ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Pin, lock and patches are changed.
    Done {
        /// Where the report lies, in the project.
        report: Utf8PathBuf,
    },
    /// It would go through.
    DryRun,
    /// Upstream has these patches; nothing was written, since dropping them was not asked for.
    Absorbed(Vec<String>),
    /// This patch does not fit; nothing was written.
    Conflict {
        /// The patch.
        patch: String,
        /// Where a person decides; none on a dry run.
        worktree: Option<Utf8PathBuf>,
    },
}

/// A bump under way.
struct Bump {
    project: Project,
    store: Store,
    /// The pinned tree before.
    base: Oid,
    /// Held until the end.
    _vendor: Vendor,
}

/// Moves the pin, as far as it goes without a person.
///
/// # Errors
/// A bump that waits for a person; `vendor/mlx` edited by hand; a lock that does not belong to the patches; no source
/// brings the new pin.
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
    let target = target::find(&bump.project, &bump.store, options, progress)?;
    bump.go(
        &target,
        Vec::new(),
        options.drop_absorbed,
        options.dry_run,
        progress,
    )
}

/// Takes what a person decided in the worktree, and goes on.
///
/// # Errors
/// No bump waits; the project changed since it stopped; markers or stray files are left in the worktree.
pub fn resume(workspace: &Workspace, progress: Progress<'_>) -> Result<(Report, Outcome)> {
    let bump = Bump::begin(workspace, true, progress)?;
    let mut pending = Pending::load(workspace)?.ok_or(Error::NoBump)?;
    if pending.project != fingerprint(workspace)? {
        return Err(Error::BumpStale);
    }
    let series = &bump.project.series;
    let at = series
        .position(&pending.patch)
        .map_err(|_| Error::BumpStale)?;
    pending.take(workspace, &bump.store, &series.patches[at])?;
    bump.go(
        &pending.target,
        pending.resolved,
        pending.drop_absorbed,
        false,
        progress,
    )
}

/// Gives up a bump that waits for a person. The project was not touched, so only the worktree goes.
///
/// # Errors
/// No bump waits.
pub fn abort(workspace: &Workspace, progress: Progress<'_>) -> Result<()> {
    let _vendor = Vendor::lock(workspace, progress)?;
    Pending::load(workspace)?.ok_or(Error::NoBump)?;
    desk(workspace).clear()
}

/// The series on the new base, as far as it went.
struct Rebased {
    fates: Vec<Fate>,
    /// Name and tree of each patch that is still one.
    trees: Vec<(String, Oid)>,
    /// The patch that does not fit.
    stopped: Option<usize>,
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

    fn go(
        &self,
        target: &Target,
        by_hand: Vec<pending::ResolvedPatch>,
        drop_absorbed: bool,
        dry_run: bool,
        progress: Progress<'_>,
    ) -> Result<(Report, Outcome)> {
        progress(Event::Working("putting the patches onto the new pin"));
        let repo = self.store.overlay()?;
        let old = self.project.series.resolve(&repo, self.base)?;
        let rebased = self.rebase(&repo, &old, target.tree, &by_hand)?;
        let report = self.report(&repo, target, &rebased)?;

        let absorbed: Vec<_> = report.absorbed().map(|patch| patch.name.clone()).collect();
        let outcome = if let Some(at) = rebased.stopped {
            let patch = self.project.series.patches[at].name.clone();
            let worktree = if dry_run {
                None
            } else {
                Some(self.wait(target, at, by_hand, drop_absorbed)?)
            };
            Outcome::Conflict { patch, worktree }
        } else if !absorbed.is_empty() && !drop_absorbed {
            Outcome::Absorbed(absorbed)
        } else {
            let changes = self.changes(&repo, target, &rebased, &report)?;
            if dry_run {
                Outcome::DryRun
            } else {
                journal::commit(&self.project.workspace, &changes)?;
                desk(&self.project.workspace).clear()?;
                Outcome::Done {
                    report: Utf8PathBuf::from(REPORTS).join(report.file_name()),
                }
            }
        };
        Ok((report, outcome))
    }

    fn rebase(
        &self,
        repo: &Repository,
        old: &Resolved,
        base: Oid,
        by_hand: &[pending::ResolvedPatch],
    ) -> Result<Rebased> {
        let mut rebased = Rebased {
            fates: Vec::new(),
            trees: Vec::new(),
            stopped: None,
        };
        let (mut parent, mut onto) = (old.base, base);
        for (at, (patch, patched)) in self
            .project
            .series
            .patches
            .iter()
            .zip(&old.trees)
            .enumerate()
        {
            let resolved = by_hand.iter().find(|resolved| resolved.name == patch.name);
            let (tree, fate) = match resolved {
                Some(resolved) if resolved.tree == onto => (onto, Fate::Absorbed),
                Some(resolved) => (resolved.tree, Fate::Resolved),
                None => match merge(repo, &patch.name, parent, *patched, onto)? {
                    Merged::Tree(tree) => (tree, fate(repo, (parent, *patched), (onto, tree))?),
                    Merged::Conflicts(conflicts) => {
                        rebased.stopped = Some(at);
                        rebased.fates.push(Fate::Conflict(conflicts));
                        rebased
                            .fates
                            .resize(self.project.series.patches.len(), Fate::NotTried);
                        return Ok(rebased);
                    }
                },
            };
            if fate != Fate::Absorbed {
                rebased.trees.push((patch.name.clone(), tree));
            }
            rebased.fates.push(fate);
            (parent, onto) = (*patched, tree);
        }
        Ok(rebased)
    }

    /// Lays out the worktree for the patch that does not fit.
    fn wait(
        &self,
        target: &Target,
        at: usize,
        resolved: Vec<pending::ResolvedPatch>,
        drop_absorbed: bool,
    ) -> Result<Utf8PathBuf> {
        let desk = desk(&self.project.workspace);
        desk.clear()?;
        let worktree = desk.worktree();
        let bench = Workbench::create(&worktree, &self.store)?;
        // Once more, for the objects to lie in the worktree's own repository.
        let old = self.project.series.resolve(bench.repo(), self.base)?;
        let rebased = self.rebase(bench.repo(), &old, target.tree, &resolved)?;
        let patches = &self.project.series.patches;
        pending::lay_out(
            &bench,
            &Stop {
                target,
                patches,
                old: &old,
                at,
                onto: &rebased.trees,
            },
        )?;
        let pending = Pending {
            project: fingerprint(&self.project.workspace)?,
            drop_absorbed,
            patch: patches[at].name.clone(),
            onto: rebased.trees.last().map_or(target.tree, |(_, tree)| *tree),
            target: target.clone(),
            resolved,
        };
        desk.save(&pending)?;
        Ok(worktree)
    }

    fn report(&self, repo: &Repository, target: &Target, rebased: &Rebased) -> Result<Report> {
        let pin = target.pin()?;
        let patches =
            self.project
                .series
                .patches
                .iter()
                .zip(&rebased.fates)
                .map(|(patch, fate)| PatchReport {
                    name: patch.name.clone(),
                    subject: patch.header.subject().to_owned(),
                    fate: fate.clone(),
                    drop_when: patch.header.field("Drop-When").join(" "),
                });
        let files = self.files(repo, target.tree)?;
        let paths: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
        let commits = match &target.history {
            Some(folder) => history::commits(folder, self.base, target.tree, &paths)?,
            None => None,
        };
        Ok(Report {
            from: PinName::new(&self.project.manifest.mlx, self.base),
            to: PinName::new(&pin, target.tree),
            source: target.source.clone(),
            patches: patches.collect(),
            files,
            commits,
            watched: watch::compare(repo, self.base, target.tree, &self.project.manifest.watch)?,
            final_tree: rebased
                .stopped
                .is_none()
                .then(|| rebased.trees.last().map_or(target.tree, |(_, tree)| *tree)),
        })
    }

    fn files(&self, repo: &Repository, new: Oid) -> Result<Vec<FileReport>> {
        let mut edited: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for patch in &self.project.series.patches {
            for edit in &patch.edits {
                edited
                    .entry(&edit.path)
                    .or_default()
                    .push(patch.name.clone());
            }
        }
        let changes = hunks::between(repo, self.base, new, 0)?;
        let tree = repo.find_tree(new)?;
        let files = edited.into_iter().map(|(path, patches)| {
            let change = match hunks::counts(&changes, path) {
                _ if tree.get_path(path.as_ref()).is_err() => FileChange::Gone,
                (0, 0) => FileChange::Same,
                (added, removed) => FileChange::Edited { added, removed },
            };
            FileReport {
                path: path.to_owned(),
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
        rebased: &Rebased,
        report: &Report,
    ) -> Result<Changes> {
        let series = &self.project.series;
        let mut rewritten = Rewritten::new(target.tree);
        for (name, tree) in &rebased.trees {
            let header = &series.patches[series.position(name)?].header;
            // A file that upstream has by now is edited, if anything, and no longer added.
            let there = repo.find_tree(rewritten.tree())?;
            let added = |path: &&str| there.get_path(path.as_ref()).is_err();
            let adds = header.adds().filter(added).map(str::to_owned);
            let header = header.clone().with_adds(adds);
            rewritten.push(repo, name, &header, *tree)?;
        }
        let verdict = target.verdict();
        let mut changes = rewritten.changes(&self.project, repo, &target.pin()?, verdict)?;
        for (path, text) in [
            ("mlx.toml".to_owned(), target.manifest.clone()),
            (
                format!("{REPORTS}/{}", report.file_name()),
                report.to_markdown(),
            ),
        ] {
            let file = File {
                mode: Mode::Regular,
                bytes: text.into_bytes(),
            };
            changes.insert(path, Some(file));
        }
        Ok(changes)
    }
}
