//! Moves the pin: fetches the new MLX, puts every patch onto it by a 3-way merge, and changes pin, lock and patches
//! together, last. A conflict stops before anything is written and leaves a worktree for a person to decide in.

mod edit;
mod history;
mod hunks;
mod merge;
mod pending;
mod report;
mod target;

use std::collections::BTreeMap;

use camino::Utf8PathBuf;
use fs_err as fs;
use git2::{Oid, Repository};

use crate::error::{Error, Result};
use crate::journal::{self, Changes};
use crate::lock::Lock;
use crate::manifest::Manifest;
use crate::patch::{self, Patch};
use crate::progress::{Event, Progress};
use crate::series::{Resolved, Series};
use crate::state::{self, State};
use crate::store::Store;
use crate::swap::Vendor;
use crate::tree::{File, Mode};
use crate::watch;
use crate::workbench::Workbench;
use crate::workspace::Workspace;

use merge::fate;
use pending::{Pending, Stop};
use target::Target;

pub(crate) use hunks::between;
pub(crate) use merge::{Merged, merge};
pub(crate) use pending::fingerprint;

pub use hunks::Hunk;
pub use merge::{Conflict, Fate, Moved, MovedHunk, Place};
pub use report::{FileChange, FileReport, PatchReport, PinName, Report};

/// How the lines of a conflict begin: our side, the ancestor, the end.
pub(crate) const MARKERS: [&str; 3] = ["<<<<<<< ", "||||||| ", ">>>>>>> "];

/// The folder of the reports, in the project.
const REPORTS: &str = "docs/pin-moves";

/// Where to go, and how.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A version, tag or commit.
    pub wanted: String,
    /// A folder, repository, archive or the address of a repository to take it from.
    pub source: Option<String>,
    /// The tree id that it must have.
    pub tree: Option<Oid>,
    /// Take absorbed patches out of the series.
    pub drop_absorbed: bool,
    /// Write nothing but the cache of what was fetched.
    pub dry_run: bool,
    /// Use no network.
    pub offline: bool,
}

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

/// The project as a bump finds it.
struct Project<'a> {
    workspace: &'a Workspace,
    manifest: Manifest,
    series: Series,
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
    let project = Project::open(workspace, options.offline, progress)?;
    if let Some(pending) = Pending::load(workspace)? {
        return Err(Error::BumpPending {
            patch: pending.patch,
            worktree: pending::worktree(workspace),
        });
    }
    let target = target::find(
        workspace,
        &project.store,
        &project.manifest,
        options,
        progress,
    )?;
    project.go(
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
    let project = Project::open(workspace, true, progress)?;
    let mut pending = Pending::load(workspace)?.ok_or(Error::NoBump)?;
    if pending.project != fingerprint(workspace)? {
        return Err(Error::BumpStale);
    }
    let patch = project
        .series
        .patches
        .iter()
        .find(|patch| patch.name == pending.patch)
        .ok_or(Error::BumpStale)?;
    pending.take(workspace, &project.store, patch)?;
    project.go(
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
    pending::remove(workspace)
}

/// The series on the new base, as far as it went.
struct Rebased {
    fates: Vec<Fate>,
    /// Name and tree of each patch that is still one.
    trees: Vec<(String, Oid)>,
    /// The patch that does not fit.
    stopped: Option<usize>,
}

impl<'a> Project<'a> {
    fn open(workspace: &'a Workspace, offline: bool, progress: Progress<'_>) -> Result<Self> {
        let vendor = Vendor::lock(workspace, progress)?;
        journal::recover(workspace)?;
        let manifest = Manifest::load(&workspace.manifest_path())?;
        let series = Series::load(&workspace.patches())?;
        let lock = Lock::load_for(&workspace.lock_path(), &manifest.mlx, &series)?;
        if let State::Tampered(paths) = state::inspect(workspace, &lock, &series)?.state {
            return Err(Error::Tampered(Box::new(paths)));
        }
        let store = Store::open(workspace)?;
        let base = target::old_base(workspace, &store, &manifest, &lock, offline, progress)?;
        Ok(Self {
            workspace,
            manifest,
            series,
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
        let old = self.series.resolve(&repo, self.base)?;
        let rebased = self.rebase(&repo, &old, target.tree, &by_hand)?;
        let report = self.report(&repo, target, &rebased)?;

        let absorbed: Vec<_> = report.absorbed().map(|patch| patch.name.clone()).collect();
        let outcome = if let Some(at) = rebased.stopped {
            let patch = self.series.patches[at].name.clone();
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
                journal::commit(self.workspace, &changes)?;
                pending::remove(self.workspace)?;
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
        for (at, (patch, patched)) in self.series.patches.iter().zip(&old.trees).enumerate() {
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
                            .resize(self.series.patches.len(), Fate::NotTried);
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
        pending::remove(self.workspace)?;
        let worktree = pending::worktree(self.workspace);
        let bench = Workbench::create(&worktree, &self.store)?;
        // Once more, for the objects to lie in the worktree's own repository.
        let old = self.series.resolve(bench.repo(), self.base)?;
        let rebased = self.rebase(bench.repo(), &old, target.tree, &resolved)?;
        let patches = &self.series.patches;
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
            project: fingerprint(self.workspace)?,
            drop_absorbed,
            patch: patches[at].name.clone(),
            onto: rebased.trees.last().map_or(target.tree, |(_, tree)| *tree),
            target: target.clone(),
            resolved,
        };
        pending.save(self.workspace)?;
        Ok(worktree)
    }

    fn report(&self, repo: &Repository, target: &Target, rebased: &Rebased) -> Result<Report> {
        let pin = target.pin()?;
        let patches = self
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
            from: PinName::new(&self.manifest.mlx, self.base),
            to: PinName::new(&pin, target.tree),
            source: target.source.clone(),
            patches: patches.collect(),
            files,
            commits,
            watched: watch::compare(repo, self.base, target.tree, &self.manifest.watch)?,
            final_tree: rebased
                .stopped
                .is_none()
                .then(|| rebased.trees.last().map_or(target.tree, |(_, tree)| *tree)),
        })
    }

    fn files(&self, repo: &Repository, new: Oid) -> Result<Vec<FileReport>> {
        let mut edited: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for patch in &self.series.patches {
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
            let change = match merge::counts(&changes, path) {
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

    /// The project's files after the bump, each checked by reading it as the next run will.
    fn changes(
        &self,
        repo: &Repository,
        target: &Target,
        rebased: &Rebased,
        report: &Report,
    ) -> Result<Changes> {
        let mut changes = Changes::new();
        let mut text = |path: String, bytes: Vec<u8>| {
            changes.insert(
                path,
                Some(File {
                    mode: Mode::Regular,
                    bytes,
                }),
            );
        };
        let mut series = Series::default();
        let mut before = target.tree;
        for (name, tree) in &rebased.trees {
            let Some(patch) = self.series.patches.iter().find(|patch| patch.name == *name) else {
                continue;
            };
            // A file that upstream has by now is edited, if anything, and no longer added.
            let there = repo.find_tree(before)?;
            let (gone, adds): (Vec<_>, Vec<_>) = patch
                .header
                .adds()
                .partition(|path| there.get_path(path.as_ref()).is_ok());
            let header = if gone.is_empty() {
                patch.header.clone()
            } else {
                let kept = adds.iter().map(|path| (*path).to_owned());
                patch.header.clone().with_adds(kept)
            };
            let bytes = patch::export(repo, name, &header, before, *tree, &adds)?;
            let after = Patch::parse(name, &bytes)?;
            if after.blob != patch.blob {
                text(format!("patches/{name}.patch"), bytes);
            }
            series.take_files(repo, &after, *tree)?;
            series.patches.push(after);
            before = *tree;
        }
        let pin = target.pin()?;
        let resolved = series.resolve(repo, target.tree)?;
        if resolved.final_tree() != before {
            return Err(Error::TreeMismatch {
                expected: before,
                found: resolved.final_tree(),
                difference: None,
            });
        }
        let lock = Lock::new(&pin, target.confirmed.clone(), &series, &resolved);
        text("mlx.toml".to_owned(), target.manifest.clone().into_bytes());
        text("mlx.lock".to_owned(), lock.to_text()?.into_bytes());
        text(
            format!("{REPORTS}/{}", report.file_name()),
            report.to_markdown().into_bytes(),
        );
        for (path, (entry, file)) in &series.files {
            if self
                .series
                .files
                .get(path)
                .is_none_or(|(old, _)| old != entry)
            {
                changes.insert(format!("patches/files/{path}"), Some(file.clone()));
            }
        }
        for path in self
            .series
            .files
            .keys()
            .filter(|path| !series.files.contains_key(*path))
        {
            changes.insert(format!("patches/files/{path}"), None);
        }
        for patch in report.absorbed() {
            changes.insert(format!("patches/{}.patch", patch.name), None);
        }
        if report.absorbed().next().is_some() {
            let names = fs::read_to_string(self.workspace.patches().join("series"))?;
            let left = without(&names, report.absorbed().map(|patch| patch.name.as_str()));
            changes.insert(
                "patches/series".to_owned(),
                Some(File {
                    mode: Mode::Regular,
                    bytes: left.into_bytes(),
                }),
            );
        }
        Ok(changes)
    }
}

/// The series without some names; comments and the rest stay as they are.
fn without<'n>(series: &str, names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<_> = names.collect();
    let kept = |line: &&str| !names.contains(&line.split('#').next().unwrap_or_default().trim());
    series.split_inclusive('\n').filter(kept).collect()
}
