//! `mlx.lock`: the trees that the pin and the patches produce, written by xtask and committed.

use camino::Utf8Path;
use fs_err as fs;
use git2::Oid;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::model::manifest::{Pin, TreeOrigin};
use crate::model::series::{Resolved, Series};
use crate::place::journal::{self, Changes};
use crate::place::workspace::Workspace;
use crate::read::{self, hex};
use crate::tree::{File, Mode};

const FORMAT: u32 = 1;
const PREAMBLE: &str = "\
# Written by `cargo xtask`; edit mlx.toml or patches/ instead.
# Tree and blob ids are git's: `git write-tree` over the same files gives the same.

";

/// The content of `mlx.lock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    format: u32,
    /// The pinned version.
    pub version: String,
    /// The tree before the first patch.
    #[serde(with = "hex")]
    pub base_tree: Oid,
    /// The tree after the last one.
    #[serde(with = "hex")]
    pub final_tree: Oid,
    /// The commit, if a git source has the reconstructed tree of the pin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Confirmed>,
    /// The tree that the user accepted instead of the reconstructed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Replaced>,
    /// The patches, in order.
    #[serde(default, rename = "patch", skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<LockedPatch>,
}

/// Knowledge about the tree of a reconstructed pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A git source has that tree.
    Confirmed(Confirmed),
    /// The user accepted another tree.
    Replaced(Replaced),
}

impl Verdict {
    /// The tree to start from.
    pub fn tree(&self) -> Oid {
        match self {
            Self::Confirmed(confirmed) => confirmed.tree,
            Self::Replaced(replaced) => replaced.tree,
        }
    }
}

/// The upstream commit whose tree is the reconstructed one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confirmed {
    /// The complete commit id.
    #[serde(with = "hex")]
    pub commit: Oid,
    /// Its tree, which is the pin's.
    #[serde(with = "hex")]
    pub tree: Oid,
}

/// A tree that replaces the reconstructed one, accepted by the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replaced {
    /// The tree to start from.
    #[serde(with = "hex")]
    pub tree: Oid,
    /// The pin's tree, which it replaces.
    #[serde(with = "hex")]
    pub pinned: Oid,
    /// Its commit, if git had one.
    #[serde(default, with = "hex::option", skip_serializing_if = "Option::is_none")]
    pub commit: Option<Oid>,
}

/// One patch of the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedPatch {
    /// The name in the series.
    pub name: String,
    /// The blob id of the patch file.
    #[serde(with = "hex")]
    pub blob: Oid,
    /// The tree after it.
    #[serde(with = "hex")]
    pub tree: Oid,
    /// The files that it adds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adds: Vec<LockedFile>,
}

/// A file that the overlay adds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedFile {
    /// The path in MLX's tree.
    pub path: String,
    /// The id of its content.
    #[serde(with = "hex")]
    pub blob: Oid,
}

impl Lock {
    /// The lock of a resolved series.
    pub fn new(pin: &Pin, verdict: Option<Verdict>, series: &Series, resolved: &Resolved) -> Self {
        let patches = series
            .patches
            .iter()
            .zip(&resolved.trees)
            .map(|(patch, tree)| LockedPatch {
                name: patch.name.clone(),
                blob: patch.blob,
                tree: *tree,
                adds: series
                    .added_by(patch)
                    .map(|(path, blob)| LockedFile {
                        path: path.to_owned(),
                        blob,
                    })
                    .collect(),
            })
            .collect();
        let (confirmed, replaced) = match verdict {
            Some(Verdict::Confirmed(confirmed)) => (Some(confirmed), None),
            Some(Verdict::Replaced(replaced)) => (None, Some(replaced)),
            None => (None, None),
        };
        Self {
            format: FORMAT,
            version: pin.version.clone(),
            base_tree: resolved.base,
            final_tree: resolved.final_tree(),
            confirmed,
            replaced,
            patches,
        }
    }

    /// Reads `mlx.lock`; `None` if there is none.
    ///
    /// # Errors
    /// Unknown keys, wrong types or another format; the error has the line.
    pub fn load(file: &Utf8Path) -> Result<Option<Self>> {
        if !read::is_there(file)? {
            return Ok(None);
        }
        let lock: Self = read::toml(file)?;
        if lock.format != FORMAT {
            return Err(Error::Format {
                file: file.file_name().unwrap_or_default().into(),
                line: 1,
                message: format!("expected format = {FORMAT}, found {}", lock.format),
            });
        }
        Ok(Some(lock))
    }

    /// The lock, if it matches this pin and these patches. The trees themselves are not computed.
    ///
    /// # Errors
    /// There is no lock, or it does not match.
    pub fn of<'a>(lock: Option<&'a Self>, pin: &Pin, series: &Series) -> Result<&'a Self> {
        let lock = lock.ok_or(Error::LockMissing)?;
        match lock.differences(pin, series) {
            differences if differences.is_empty() => Ok(lock),
            differences => Err(Error::LockDiffers(differences)),
        }
    }

    /// The text of `mlx.lock`.
    pub fn to_text(&self) -> Result<String> {
        let body = toml::to_string(self).map_err(|error| Error::source("mlx.lock", error))?;
        Ok(format!("{PREAMBLE}{body}"))
    }

    /// Writes `mlx.lock` and its copy, both or neither, and returns whether one of them changed. A file with equivalent
    /// content stays.
    pub fn save(&self, workspace: &Workspace) -> Result<bool> {
        let (mut changes, text) = (Changes::new(), self.to_text()?);
        for path in workspace.lock_files() {
            let file = workspace.root().join(path);
            let is_file = fs::symlink_metadata(&file).is_ok_and(|found| found.is_file());
            // A file that cannot be read counts as different.
            if !is_file || Self::load(&file).ok().flatten().as_ref() != Some(self) {
                let bytes = text.clone().into_bytes();
                let mode = Mode::Regular;
                changes.insert(path.to_owned(), Some(File { mode, bytes }));
            }
        }
        if changes.is_empty() {
            return Ok(false);
        }
        journal::commit(workspace, &changes)?;
        Ok(true)
    }

    /// The first copy of the lock that differs.
    pub(crate) fn other_copy(&self, workspace: &Workspace) -> Option<&'static str> {
        workspace.lock_files().into_iter().find(|path| {
            let copy = Self::load(&workspace.root().join(path)).ok().flatten();
            copy.as_ref() != Some(self)
        })
    }

    /// The lock's record of this pin's tree, if it was reconstructed.
    pub fn verdict_for(&self, pin: &Pin) -> Option<Verdict> {
        if pin.tree_origin != TreeOrigin::Reconstructed || self.version != pin.version {
            return None;
        }
        let replaced = self.replaced.clone();
        if let Some(replaced) = replaced.filter(|replaced| replaced.pinned == pin.tree) {
            return Some(Verdict::Replaced(replaced));
        }
        let confirmed = self.confirmed.clone();
        confirmed
            .filter(|confirmed| {
                // A commit that only begins with the pinned digits proves nothing.
                let digits = pin.commit.is_none() || pin.is_commit(confirmed.commit);
                digits && confirmed.tree == pin.tree
            })
            .map(Verdict::Confirmed)
    }

    /// Every tree of the lock, from the base to the final one.
    pub fn trees(&self) -> impl DoubleEndedIterator<Item = Oid> {
        std::iter::once(self.base_tree).chain(self.patches.iter().map(|patch| patch.tree))
    }

    /// Whether the patches produce the same trees in both.
    pub(crate) fn same_trees(&self, other: &Self) -> bool {
        (self.final_tree, &self.patches) == (other.final_tree, &other.patches)
    }

    /// The differences between this lock and the current pin and patches.
    fn differences(&self, pin: &Pin, series: &Series) -> Vec<String> {
        let mut differences = Vec::new();
        if self.version != pin.version {
            differences.push(format!(
                "it locks MLX {}, but mlx.toml pins {}",
                self.version, pin.version
            ));
        }
        let base = base_tree(pin, Some(self));
        if self.base_tree != base {
            differences.push(format!(
                "its base is tree {}, but the pin's is {base}",
                self.base_tree
            ));
        }
        let locked: Vec<_> = self
            .patches
            .iter()
            .map(|patch| patch.name.as_str())
            .collect();
        let names: Vec<_> = series
            .patches
            .iter()
            .map(|patch| patch.name.as_str())
            .collect();
        if locked != names {
            differences.push(format!(
                "it locks the patches [{}], but the series has [{}]",
                locked.join(", "),
                names.join(", ")
            ));
            return differences;
        }
        for (locked, patch) in self.patches.iter().zip(&series.patches) {
            if locked.blob != patch.blob {
                differences.push(format!("patches/{}.patch has changed", patch.name));
            }
            let adds = locked
                .adds
                .iter()
                .map(|file| (file.path.as_str(), file.blob));
            if !adds.eq(series.added_by(patch)) {
                differences.push(format!("the files that {} adds have changed", patch.name));
            }
        }
        differences
    }
}

/// The tree to start from: the pin's, unless the user accepted another one.
pub fn base_tree(pin: &Pin, lock: Option<&Lock>) -> Oid {
    lock.and_then(|lock| lock.verdict_for(pin))
        .map_or(pin.tree, |verdict| verdict.tree())
}
