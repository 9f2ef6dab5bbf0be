//! A bump that stopped at a conflict: the resolutions so far, and the worktree in which a person resolves the rest.

use std::collections::BTreeSet;

use camino::Utf8PathBuf;
use fs_err as fs;
use git2::{Oid, Repository};
use serde::{Deserialize, Serialize};

use super::target::Target;
use crate::error::{Error, Result};
use crate::model::patch::Patch;
use crate::place::workspace::Workspace;
use crate::project::fingerprint;
use crate::read::hex;
use crate::tree::{Listing, Snapshot};
use crate::work::memory::{Decision, Memory};
use crate::work::merge::{Clashes, MARKERS, Merged, merge};
use crate::work::workbench::{BRANCH, Desk, Workbench};

/// `target/bump/state.toml`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pending {
    /// A fingerprint of the project's files when the bump began.
    pub(super) project: String,
    /// The patch that waits for a person.
    pub(super) patch: String,
    /// The tree onto which the patch is rebased.
    #[serde(with = "hex")]
    pub(super) onto: Oid,
    /// The worktree as it was laid out.
    #[serde(with = "hex")]
    pub(super) laid_out: Oid,
    /// The new pin.
    pub(super) target: Target,
    pub(super) choices: Choices,
}

/// A person's decisions in this bump.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Choices {
    /// Whether patches without changes are dropped.
    pub(super) drop_absorbed: bool,
    /// Patches that a person wants to resolve again, regardless of earlier bumps.
    #[serde(default)]
    pub(super) again: Vec<String>,
    /// The patches resolved so far.
    #[serde(default)]
    pub(super) resolved: Vec<ResolvedPatch>,
}

impl Choices {
    /// The tree that a person made from a patch.
    pub(super) fn resolved(&self, patch: &str) -> Option<Oid> {
        let found = self.resolved.iter().find(|one| one.name == patch);
        found.map(|one| one.tree)
    }

    /// The earlier resolutions that apply to a patch.
    pub(super) fn memory(&self, workspace: &Workspace, patch: &str) -> Memory {
        if self.again.iter().any(|name| name == patch) {
            Memory::default()
        } else {
            Memory::of(workspace)
        }
    }
}

/// A patch that a person rebased onto the new base.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolvedPatch {
    pub(super) name: String,
    /// The tree after it.
    #[serde(with = "hex")]
    pub(super) tree: Oid,
}

/// `target/bump`.
pub(super) fn desk(workspace: &Workspace) -> Desk {
    Desk::below_target(workspace, "bump")
}

/// A bump that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// The patch that does not fit.
    pub patch: String,
    /// The MLX to which the pin moves.
    pub to: String,
    /// Where to resolve it.
    pub worktree: Utf8PathBuf,
    /// Whether the project changed since, so that the bump cannot continue.
    pub stale: bool,
}

/// The bump that waits, if there is one. Changes nothing.
///
/// # Errors
/// Its state cannot be read.
pub fn waiting(workspace: &Workspace) -> Result<Option<Waiting>> {
    let Some(pending) = Pending::read(workspace)? else {
        return Ok(None);
    };
    Ok(Some(Waiting {
        to: pending.target.pin()?.title(),
        patch: pending.patch,
        worktree: desk(workspace).worktree(),
        stale: fingerprint(workspace).ok() != Some(pending.project),
    }))
}

impl Pending {
    fn read(workspace: &Workspace) -> Result<Option<Self>> {
        let pending = desk(workspace).load::<Self>()?;
        // It succeeded, and was killed before it could clean up.
        let over = |pending: &Self| {
            fs::read_to_string(workspace.manifest_path())
                .is_ok_and(|text| text == pending.target.manifest)
        };
        Ok(pending.filter(|pending| !over(pending)))
    }

    /// The bump that waits, if there is one; the remains of a finished one are removed.
    pub(super) fn load(workspace: &Workspace) -> Result<Option<Self>> {
        let desk = desk(workspace);
        desk.recover()?;
        let pending = Self::read(workspace)?;
        if pending.is_none() {
            desk.clear()?;
        }
        Ok(pending)
    }

    /// The result of the person's work in the worktree.
    pub(super) fn decided(
        &self,
        workspace: &Workspace,
        bench: &Workbench,
        patch: &Patch,
        (parent, patched): (Oid, Oid),
    ) -> Result<Decided> {
        let (snapshot, listing) = bench.files()?;
        let before = Listing::of_tree(bench.repo(), self.onto)?;
        let faults = self.faults(bench, patch, (&snapshot, &listing), &before)?;
        if !faults.is_empty() {
            return Err(Error::Unresolved {
                worktree: desk(workspace).worktree(),
                faults,
            });
        }
        let nothing = Memory::default();
        let repo = bench.repo();
        let merged = merge(repo, &nothing, &patch.name, parent, patched, self.onto)?;
        let decisions = match merged {
            Merged::Clashes(clashes) => {
                self.decisions(repo, patch, &clashes, &snapshot, &listing)?
            }
            Merged::Tree(_) => None,
        };
        Ok(Decided {
            snapshot,
            listing,
            decisions,
        })
    }

    /// The decisions to remember. `None` if the person changed more than the conflicting files: reusing a part of a
    /// resolution would lose the rest.
    fn decisions(
        &self,
        repo: &Repository,
        patch: &Patch,
        clashes: &Clashes,
        snapshot: &Snapshot,
        listing: &Listing,
    ) -> Result<Option<Vec<(String, Decision)>>> {
        let in_conflict: BTreeSet<_> = clashes.each.iter().map(|one| &one.conflict.path).collect();
        let difference = Listing::of_tree(repo, clashes.tree)?.difference(listing);
        if !difference
            .paths()
            .iter()
            .all(|path| in_conflict.contains(path))
        {
            return Ok(None);
        }
        let mut decisions = Vec::new();
        for clash in &clashes.each {
            let file = snapshot.0.get(&clash.conflict.path);
            // A resolution is a text. A link, or a mode that a person chose, would be lost.
            if clash.mode.is_none() || file.is_some_and(|file| Some(file.mode) != clash.mode) {
                return Ok(None);
            }
            let text = file
                .map(|file| String::from_utf8(file.bytes.clone()))
                .transpose();
            // A binary file is resolved again each time.
            let Ok(after) = text else {
                return Ok(None);
            };
            decisions.push((clash.key.clone(), clash.decision(&patch.name, after)));
        }
        Ok(Some(decisions))
    }

    fn faults(
        &self,
        bench: &Workbench,
        patch: &Patch,
        (snapshot, listing): (&Snapshot, &Listing),
        before: &Listing,
    ) -> Result<Vec<String>> {
        let name = &patch.name;
        let staged = bench.staged()?;
        let adds: BTreeSet<_> = patch.header.adds().collect();
        let mut faults = Vec::new();
        for (path, file) in &snapshot.0 {
            let known = before.0.contains_key(path)
                || adds.contains(path.as_str())
                || staged.contains(path);
            if !known {
                faults.push(format!(
                    "{path} is neither MLX's nor one that {name} adds; remove it, or `git add` it if {name} is to add it"
                ));
            } else if before.0.get(path) != listing.0.get(path)
                && let Some(line) = first_marker(&file.bytes)
            {
                faults.push(format!("{path}:{line}: it still has a conflict marker"));
            }
        }
        let is_gone = |path: &str| !listing.0.contains_key(path);
        let gone = before.0.keys().filter(|path| is_gone(path));
        faults.extend(gone.map(|path| {
            format!("{path} is missing; a patch cannot delete files (`git checkout HEAD -- {path}` restores it)")
        }));
        let lost = adds.into_iter().filter(|path| {
            is_gone(path) && !before.0.contains_key(*path) && staged.contains(*path)
        });
        faults.extend(lost.map(|path| {
            format!(
                "{path}, which {name} adds, is missing: `git checkout -- {path}` restores it, \
                 `git rm --cached {path}` removes it from the patch"
            )
        }));
        Ok(faults)
    }
}

/// The result of a person's work in a worktree.
pub(super) struct Decided {
    pub(super) snapshot: Snapshot,
    pub(super) listing: Listing,
    /// The resolutions to remember, with their names; `None` if they would only be a part of the work.
    decisions: Option<Vec<(String, Decision)>>,
}

impl Decided {
    /// Saves it for the next time; returns whether all of it could be saved.
    pub(super) fn remember(&self, workspace: &Workspace) -> Result<bool> {
        let memory = Memory::of(workspace);
        for (key, decision) in self.decisions.iter().flatten() {
            memory.keep(key, decision)?;
        }
        Ok(self.decisions.is_some())
    }
}

/// The line of the first marker, counted from 1.
fn first_marker(bytes: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(bytes);
    let is_marker = |line: &str| MARKERS.iter().any(|mark| line.starts_with(mark));
    text.lines().position(is_marker).map(|line| line + 1)
}

/// The input of [`lay_out`]: patch number `at` does not fit onto `onto`, the trees of the patches before it.
pub(super) struct Stop<'a> {
    pub(super) target: &'a Target,
    pub(super) patches: &'a [Patch],
    pub(super) at: usize,
    /// The trees before and after the patch at the old pin.
    pub(super) change: (Oid, Oid),
    pub(super) onto: &'a [(String, Oid)],
    /// The resolutions of earlier bumps.
    pub(super) memory: &'a Memory,
}

/// Fills the worktree: the new base, the patches that fit, and the one that did not, as an unfinished cherry-pick.
pub(super) fn lay_out(bench: &Workbench, stop: &Stop<'_>) -> Result<()> {
    let pin = stop.target.pin()?;
    let patch = &stop.patches[stop.at];
    let mut ours = bench.commit(
        &format!("MLX {}, the new pin", pin.name()),
        stop.target.tree,
        None,
    )?;
    let mut onto = stop.target.tree;
    for (name, tree) in stop.onto {
        ours = bench.commit(name, *tree, Some(ours))?;
        onto = *tree;
    }
    let (before, after) = stop.change;
    let parent = bench.commit(
        "MLX, the old pin, with the patches before this one",
        before,
        None,
    )?;
    let message = format!("{}\n\n{}", patch.name, patch.header.to_text());
    let theirs = bench.commit(&message, after, Some(parent))?;
    bench.check_out(BRANCH, ours)?;
    bench.cherry_pick(theirs, "the new pin", &patch.name, "the old pin")?;
    let repo = bench.repo();
    if let Merged::Clashes(clashes) = merge(repo, stop.memory, &patch.name, before, after, onto)? {
        for clash in clashes.each {
            if let Some(text) = &clash.decided {
                bench.put_file(&clash.conflict.path, text.as_deref())?;
            }
        }
    }
    Ok(())
}
