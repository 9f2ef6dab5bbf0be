//! The state of `vendor/mlx`. Every file is hashed; times are never trusted.

use std::fmt;
use std::io::ErrorKind;

use camino::Utf8Path;
use fs_err as fs;
use git2::Oid;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::model::lock::Lock;
use crate::model::patch::Patch;
use crate::model::series::Series;
use crate::place::vendor;
use crate::place::workspace::Workspace;
use crate::progress::Progress;
use crate::project::Project;
use crate::sources::store::Store;
use crate::tree::{Difference, Listing};
use crate::work::bump::{self, Waiting};

/// The state of `vendor/mlx`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It does not exist.
    Absent,
    /// The pinned MLX without any patch.
    Pristine,
    /// The lock's final tree.
    Applied,
    /// Every file has content that the series gives it at some point, but not all at the same point.
    PartlyApplied {
        /// Patches whose files all have their effect.
        applied: usize,
        /// Number of patches in the series.
        of: usize,
    },
    /// A tree that was made for another lock.
    Stale,
    /// Files were edited by hand.
    Tampered(Difference),
}

impl State {
    /// The name in `--json`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Pristine => "pristine",
            Self::Applied => "applied",
            Self::PartlyApplied { .. } => "partly-applied",
            Self::Stale => "stale",
            Self::Tampered(_) => "tampered",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent | Self::Pristine | Self::Applied => f.write_str(self.name()),
            Self::PartlyApplied { applied, of } => write!(f, "partly applied ({applied} of {of})"),
            Self::Stale => f.write_str("stale (made for another lock)"),
            Self::Tampered(edits) if edits.is_empty() => f.write_str("tampered (no known tree)"),
            Self::Tampered(edits) => write!(f, "tampered ({edits})"),
        }
    }
}

/// The state of one patch in `vendor/mlx`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatchState {
    /// All its files are patched.
    Applied,
    /// Some of its files are patched.
    PartlyApplied,
    /// None of its files is patched.
    NotApplied,
    /// Its files have content that is not part of the series.
    Unknown,
}

/// The result of [`inspect`].
#[derive(Debug, Clone)]
pub struct Inspection {
    /// The overall state.
    pub state: State,
    /// The files; empty if there is no tree.
    pub listing: Listing,
    /// Their tree id.
    pub tree: Option<Oid>,
    /// The state of each patch, in the order of the series.
    pub patches: Vec<PatchState>,
}

/// Hashes `vendor/mlx` and compares it with the lock.
///
/// # Errors
/// Files that cannot be read; a file or link in place of the folder.
pub fn inspect(workspace: &Workspace, lock: &Lock, series: &Series) -> Result<Inspection> {
    let folder = workspace.tree();
    if !is_folder(&folder)? {
        let patches = vec![PatchState::NotApplied; series.patches.len()];
        return Ok(Inspection {
            state: State::Absent,
            listing: Listing::default(),
            tree: None,
            patches,
        });
    }
    let listing = Listing::of_dir(&folder)?;
    let tree = listing.tree_id()?;
    let (state, patches) = classify(workspace, lock, series, &listing, tree)?;
    Ok(Inspection {
        state,
        listing,
        tree: Some(tree),
        patches,
    })
}

/// The tree in `vendor/mlx`, if it is the lock's final tree.
///
/// # Errors
/// [`Error::Tampered`] with the edits, or [`Error::NotApplied`] with another state.
pub fn applied(workspace: &Workspace, lock: &Lock, series: &Series) -> Result<Oid> {
    match inspect(workspace, lock, series)?.state {
        State::Applied => Ok(lock.final_tree),
        State::Tampered(edits) => Err(Error::Tampered(Box::new(edits))),
        state => Err(Error::NotApplied(state.to_string())),
    }
}

/// Whether the folder exists. Anything else in its place must not be replaced.
fn is_folder(path: &Utf8Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(true),
        Ok(_) => Err(Error::NotAFolder(path.to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn classify(
    workspace: &Workspace,
    lock: &Lock,
    series: &Series,
    listing: &Listing,
    tree: Oid,
) -> Result<(State, Vec<PatchState>)> {
    let of = series.patches.len();
    let first = |applied: usize| {
        (0..of)
            .map(|index| {
                if index < applied {
                    PatchState::Applied
                } else {
                    PatchState::NotApplied
                }
            })
            .collect()
    };
    // With an empty series, base and final tree are the same; then it counts as applied.
    if tree == lock.final_tree {
        return Ok((State::Applied, first(of)));
    }
    if tree == lock.base_tree {
        return Ok((State::Pristine, first(0)));
    }
    if let Some(applied) = lock.patches.iter().position(|patch| patch.tree == tree) {
        return Ok((
            State::PartlyApplied {
                applied: applied + 1,
                of,
            },
            first(applied + 1),
        ));
    }

    let placed = vendor::placed(workspace);
    let unknown = vec![PatchState::Unknown; of];
    if placed.iter().any(|(known, _)| *known == tree) {
        return Ok((State::Stale, unknown));
    }
    let base = base_listing(workspace, lock, series, &placed)?;
    let mut closest: Option<Difference> = None;
    if let Some(base) = &base {
        let chains = Chains::new(base, series);
        let unexplained = chains.unexplained(base, listing);
        if unexplained.is_empty() {
            let patches: Vec<_> = series
                .patches
                .iter()
                .map(|patch| chains.state(series, patch, listing))
                .collect();
            let applied = patches
                .iter()
                .filter(|state| **state == PatchState::Applied)
                .count();
            return Ok((State::PartlyApplied { applied, of }, patches));
        }
        closest = Some(unexplained);
    }
    for (_, known) in &placed {
        let edits = known.difference(listing);
        if closest
            .as_ref()
            .is_none_or(|closest| edits.len() < closest.len())
        {
            closest = Some(edits);
        }
    }
    Ok((State::Tampered(closest.unwrap_or_default()), unknown))
}

/// The pristine files: from the cache, or from the listing of a tree of this lock with the patches reversed.
fn base_listing(
    workspace: &Workspace,
    lock: &Lock,
    series: &Series,
    placed: &[(Oid, Listing)],
) -> Result<Option<Listing>> {
    if let Some(store) = Store::open_existing(workspace)
        && store.source_of(lock.base_tree).is_some()
    {
        return Listing::of_tree(store.repo(), lock.base_tree).map(Some);
    }
    let find = |tree: Oid| {
        placed
            .iter()
            .find(|(known, _)| *known == tree)
            .map(|(_, listing)| listing.clone())
    };
    if let Some(base) = find(lock.base_tree) {
        return Ok(Some(base));
    }
    let Some(mut listing) = find(lock.final_tree) else {
        return Ok(None);
    };
    for patch in series.patches.iter().rev() {
        for path in patch.header.adds() {
            listing.0.remove(path);
        }
        for edit in &patch.edits {
            if let Some(entry) = listing.0.get_mut(&edit.path) {
                entry.blob = edit.before;
            }
        }
    }
    Ok((listing.tree_id()? == lock.base_tree).then_some(listing))
}

/// For each file that the series changes, the contents that it has in turn.
struct Chains {
    after_each: Vec<Listing>,
}

impl Chains {
    fn new(base: &Listing, series: &Series) -> Self {
        let mut listing = base.clone();
        let after_each = series
            .patches
            .iter()
            .map(|patch| {
                for edit in &patch.edits {
                    if let Some(entry) = listing.0.get_mut(&edit.path) {
                        entry.blob = edit.after;
                    }
                }
                for path in patch.header.adds() {
                    if let Some((entry, _)) = series.files.get(path) {
                        listing.0.insert(path.to_owned(), *entry);
                    }
                }
                listing.clone()
            })
            .collect();
        Self { after_each }
    }

    /// The files whose content is not part of the series.
    fn unexplained(&self, base: &Listing, found: &Listing) -> Difference {
        let states = || std::iter::once(base).chain(&self.after_each);
        let last = self.after_each.last().unwrap_or(base);
        let mut difference = last.difference(found);
        difference.retain(|path| !states().any(|state| state.0.get(path) == found.0.get(path)));
        difference
    }

    /// The state of one patch: its files are patched from the patch on.
    fn state(&self, series: &Series, patch: &Patch, found: &Listing) -> PatchState {
        let index = series
            .patches
            .iter()
            .position(|other| other.name == patch.name)
            .unwrap_or_default();
        let paths: Vec<_> = patch
            .edits
            .iter()
            .map(|edit| edit.path.as_str())
            .chain(patch.header.adds())
            .collect();
        let has_effect = |path: &str| {
            self.after_each[index..]
                .iter()
                .any(|state| state.0.get(path) == found.0.get(path))
        };
        match paths.iter().filter(|path| has_effect(path)).count() {
            0 => PatchState::NotApplied,
            count if count == paths.len() => PatchState::Applied,
            _ => PatchState::PartlyApplied,
        }
    }
}

/// The output of `cargo xtask status --json`; the fields are stable.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// `absent`, `pristine`, `applied`, `partly-applied`, `stale` or `tampered`.
    pub state: &'static str,
    /// The pinned version.
    pub version: String,
    /// The version, and the commit of a pin that is not a release.
    pub pin: String,
    /// A description of the pinned tree's source; null if nothing was fetched.
    pub source: Option<String>,
    /// The tree id before the first patch.
    pub base_tree: String,
    /// The tree id of the files in `vendor/mlx`, computed now; null if there are none.
    pub final_tree: Option<String>,
    /// The tree id that the lock requires.
    pub lock_tree: String,
    /// Lines added plus lines removed, over all patches.
    pub changed_lines: usize,
    /// The limit for changed lines.
    pub budget_lines: usize,
    /// The patches, in order.
    pub patches: Vec<PatchStatus>,
    /// The files that were edited by hand; empty unless the state is `tampered`.
    pub edited: Vec<String>,
    /// The bump that waits for a person; null if there is none.
    pub bump: Option<Waiting>,
    /// Why the state of a bump cannot be read; null if it can, or if there is none.
    pub bump_error: Option<String>,
}

/// One patch of a [`Status`].
#[derive(Debug, Clone, Serialize)]
pub struct PatchStatus {
    /// The name in the series.
    pub name: String,
    /// The patch's state in `vendor/mlx`.
    pub state: PatchState,
    /// Lines added plus lines removed.
    pub changed_lines: usize,
}

/// Everything that `status` reports, with the state to show to people.
///
/// # Errors
/// No lock, or one that does not match the pin and the patches; unreadable files.
pub fn status(workspace: &Workspace, progress: Progress<'_>) -> Result<(State, Status)> {
    let project = Project::open(workspace, progress)?;
    let Project {
        manifest, series, ..
    } = &project;
    let lock = project.lock()?;
    let found = inspect(workspace, lock, series)?;
    let patches = series
        .patches
        .iter()
        .zip(&found.patches)
        .map(|(patch, state)| PatchStatus {
            name: patch.name.clone(),
            state: *state,
            changed_lines: patch.changed_lines,
        })
        .collect();
    // An error here does not affect the state of the tree.
    let (bump, bump_error) = match bump::waiting(workspace) {
        Ok(bump) => (bump, None),
        Err(error) => (None, Some(error.to_string())),
    };
    let status = Status {
        state: found.state.name(),
        version: manifest.mlx.version.clone(),
        pin: manifest.mlx.title(),
        source: Store::open_existing(workspace).and_then(|store| store.source_of(lock.base_tree)),
        base_tree: lock.base_tree.to_string(),
        final_tree: found.tree.map(|tree| tree.to_string()),
        lock_tree: lock.final_tree.to_string(),
        changed_lines: series.changed_lines(),
        budget_lines: manifest.overlay.budget_lines,
        patches,
        edited: match &found.state {
            State::Tampered(edits) => edits.paths(),
            _ => Vec::new(),
        },
        bump,
        bump_error,
    };
    Ok((found.state, status))
}
