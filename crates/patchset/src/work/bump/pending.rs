//! A bump that stopped at a conflict: what was decided so far, and the worktree in which a person decides the rest.

use fs_err as fs;
use git2::Oid;
use serde::{Deserialize, Serialize};

use super::target::Target;
use crate::error::{Error, Result};
use crate::model::patch::Patch;
use crate::model::series::Resolved;
use crate::place::workspace::Workspace;
use crate::read::hex;
use crate::sources::store::Store;
use crate::tree::Listing;
use crate::work::merge::MARKERS;
use crate::work::workbench::{BRANCH, Desk, Workbench};

/// `target/bump/state.toml`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pending {
    /// The project's files when the bump began.
    pub(super) project: String,
    /// Whether absorbed patches are to be dropped.
    pub(super) drop_absorbed: bool,
    /// The patch that waits for a person.
    pub(super) patch: String,
    /// The tree that the patch is put onto.
    #[serde(with = "hex")]
    pub(super) onto: Oid,
    /// The new pin.
    pub(super) target: Target,
    /// What a person resolved so far.
    #[serde(default)]
    pub(super) resolved: Vec<ResolvedPatch>,
}

/// A patch that a person put onto the new base.
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

impl Pending {
    /// The bump that waits, if there is one.
    pub(super) fn load(workspace: &Workspace) -> Result<Option<Self>> {
        let desk = desk(workspace);
        let Some(pending) = desk.load::<Self>()? else {
            return Ok(None);
        };
        if fs::read_to_string(workspace.manifest_path())? == pending.target.manifest {
            // It went through, and was killed before it could tidy up.
            desk.clear()?;
            return Ok(None);
        }
        Ok(Some(pending))
    }

    /// Takes what the person made of the worktree.
    pub(super) fn take(
        &mut self,
        workspace: &Workspace,
        store: &Store,
        patch: &Patch,
    ) -> Result<()> {
        let bench = Workbench::open(&desk(workspace).worktree())?;
        let (snapshot, listing) = bench.files()?;
        let before = Listing::of_tree(bench.repo(), self.onto)?;
        let mut faults = Vec::new();
        for (path, file) in &snapshot.0 {
            let known =
                before.0.contains_key(path) || patch.header.adds().any(|added| added == path);
            if !known {
                faults.push(format!(
                    "{path} is neither MLX's nor one that {} adds; remove it",
                    patch.name
                ));
            } else if before.0.get(path) != listing.0.get(path)
                && let Some(line) = first_marker(&file.bytes)
            {
                faults.push(format!("{path}:{line}: a conflict marker is left"));
            }
        }
        let gone = before
            .0
            .keys()
            .filter(|path| !listing.0.contains_key(*path));
        faults.extend(gone.map(|path| format!("{path} is missing; a patch deletes nothing")));
        if !faults.is_empty() {
            return Err(Error::Unresolved {
                worktree: desk(workspace).worktree(),
                faults,
            });
        }
        let tree = store.insert(&snapshot, &listing)?;
        self.resolved.push(ResolvedPatch {
            name: patch.name.clone(),
            tree,
        });
        Ok(())
    }
}

/// The line of the first marker, from 1.
fn first_marker(bytes: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(bytes);
    let is_marker = |line: &str| MARKERS.iter().any(|mark| line.starts_with(mark));
    text.lines().position(is_marker).map(|line| line + 1)
}

/// What [`lay_out`] shows: patch number `at` does not fit onto `onto`, the trees of the patches before it.
pub(super) struct Stop<'a> {
    pub(super) target: &'a Target,
    pub(super) patches: &'a [Patch],
    pub(super) old: &'a Resolved,
    pub(super) at: usize,
    pub(super) onto: &'a [(String, Oid)],
}

/// Fills the worktree: the new base, the patches that went well, and the one that did not, begun as a cherry-pick.
pub(super) fn lay_out(bench: &Workbench, stop: &Stop<'_>) -> Result<()> {
    let pin = stop.target.pin()?;
    let patch = &stop.patches[stop.at];
    let mut ours = bench.commit(
        &format!("MLX {}, the new pin", pin.name()),
        stop.target.tree,
        None,
    )?;
    for (name, tree) in stop.onto {
        ours = bench.commit(name, *tree, Some(ours))?;
    }
    let (before, after) = stop.old.around(stop.at);
    let parent = bench.commit(
        "MLX, the old pin, with the patches before this one",
        before,
        None,
    )?;
    let message = format!("{}\n\n{}", patch.name, patch.header.to_text());
    let theirs = bench.commit(&message, after, Some(parent))?;
    bench.check_out(BRANCH, ours)?;
    bench.cherry_pick(theirs, "the new pin", &patch.name, "the old pin")
}
