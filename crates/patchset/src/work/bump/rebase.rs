//! Every patch of the series on the new base.

use git2::{Oid, Repository};

use super::fate::{Fate, When, fate};
use super::pending::Choices;
use crate::error::{Error, Result};
use crate::model::patch::Patch;
use crate::project::Project;
use crate::tree::Listing;
use crate::work::merge::{Conflict, Merged, merge};
use crate::work::renames::{Old, Renames};

/// The series on the new base.
pub(super) struct Rebased {
    pub(super) fates: Vec<Fate>,
    /// Whether a patch fits only if earlier conflicts are resolved in the patches' favour.
    pub(super) depends: Vec<bool>,
    /// The tree after each patch; after one that does not fit, as if it had been resolved in its favour.
    pub(super) trees: Vec<Oid>,
    /// The first patch that does not fit.
    pub(super) stopped: Option<usize>,
}

impl Rebased {
    /// Name and tree of each patch that still has changes, up to the first that does not fit.
    pub(super) fn left(&self, names: &[String]) -> Vec<(String, Oid)> {
        let count = self.stopped.unwrap_or(self.fates.len());
        let each = names.iter().zip(&self.trees).zip(&self.fates).take(count);
        each.filter(|(_, fate)| !fate.is_empty())
            .map(|((name, tree), _)| (name.clone(), *tree))
            .collect()
    }
}

/// Rebases every patch onto the new base. After one that does not fit the others are tried too, as if it had been
/// resolved in its favour.
pub(super) fn rebase(
    repo: &Repository,
    project: &Project,
    old: &Old,
    base: Oid,
    choices: &Choices,
) -> Result<Rebased> {
    let mut rebased = Rebased {
        fates: Vec::new(),
        depends: Vec::new(),
        trees: Vec::new(),
        stopped: None,
    };
    let mut onto = base;
    // Again, without the hunks that do not fit.
    let mut without: Option<Oid> = None;
    for (at, patch) in project.series.patches.iter().enumerate() {
        let (parent, patched) = old.around(repo, at)?;
        let resolved = choices.resolved(&patch.name);
        let memory = choices.memory(&project.workspace, &patch.name);
        let put = |onto| merge(repo, &memory, &patch.name, parent, patched, onto);
        let mut upstream = onto;
        let (tree, fate) = if let Some(tree) = resolved {
            (tree, Fate::Resolved(When::Now))
        } else {
            match put(onto)? {
                Merged::Tree(tree) => {
                    let fate = fate(repo, (parent, patched), (onto, tree), &old.renames)?;
                    (tree, fate)
                }
                Merged::Clashes(clashes) if clashes.are_decided() => {
                    (clashes.tree, Fate::Resolved(When::Before))
                }
                Merged::Clashes(clashes) => {
                    upstream = clashes.without;
                    (clashes.tree, Fate::Conflict(clashes.conflicts()))
                }
            }
        };
        let fate = match (fate, same_name(repo, patch, onto, tree)?) {
            (Fate::Conflict(conflicts), _) => Fate::Conflict(conflicts),
            (_, Some(conflict)) => Fate::Conflict(vec![conflict]),
            (Fate::Resolved(_), None) if tree == onto => Fate::Emptied,
            (fate, None) => fate,
        };
        let mut depends = false;
        if let Some(tree) = without {
            without = Some(match put(tree)? {
                Merged::Tree(tree) => tree,
                Merged::Clashes(clashes) => {
                    depends = !clashes.are_decided();
                    clashes.without
                }
            });
        } else if matches!(fate, Fate::Conflict(_)) {
            rebased.stopped = Some(at);
            without = Some(upstream);
        }
        rebased.depends.push(depends);
        rebased.fates.push(fate);
        rebased.trees.push(tree);
        onto = tree;
    }
    Ok(rebased)
}

/// Adds to the conflicts of missing files the file that is most similar, if it is not similar enough to count as
/// renamed.
pub(super) fn point_at_alike(
    repo: &Repository,
    (old, new): (Oid, Oid),
    fates: &mut [Fate],
) -> Result<()> {
    const PERCENT: u16 = 20;
    let new_tree = repo.find_tree(new)?;
    let mut alike = None;
    for fate in fates {
        let Fate::Conflict(files) = fate else {
            continue;
        };
        for file in files {
            if new_tree.get_path(file.path.as_ref()).is_ok() {
                continue;
            }
            if alike.is_none() {
                alike = Some(Renames::alike(repo, old, new, PERCENT)?);
            }
            let path = alike.as_ref().map(|alike| alike.new_path(&file.path));
            if let Some(path) = path.filter(|path| *path != file.path) {
                file.reason += &format!("; {path} is the most similar file");
            }
        }
    }
    Ok(())
}

/// A file of a patch whose path differs only by case from one of upstream's: not every file system can have both.
fn same_name(repo: &Repository, patch: &Patch, onto: Oid, tree: Oid) -> Result<Option<Conflict>> {
    let names = |tree| match Listing::of_tree(repo, tree) {
        Err(Error::UnsafePath { path, why, .. }) => Ok(Some((path, why))),
        found => found.map(|_| None),
    };
    if patch.header.adds().next().is_none() || names(onto)?.is_some() {
        return Ok(None);
    }
    Ok(names(tree)?.map(|(path, why)| Conflict {
        path,
        reason: format!("{why}, and the patch adds one of the two"),
        places: Vec::new(),
        decided: false,
    }))
}
