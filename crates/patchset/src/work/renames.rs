//! Upstream's renames between two pins. Patches rename nothing, so the old pin's trees are first changed to the new
//! names; then every merge is one of files with the same path.

use std::collections::BTreeMap;

use git2::{Delta, DiffFindOptions, Index, Oid, Repository};

use crate::error::Result;
use crate::model::series::{Resolved, Series};

/// Old paths and new ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Renames(BTreeMap<String, String>);

impl Renames {
    /// The files that disappeared and came back under another path with at least half of their lines.
    pub(crate) fn between(repo: &Repository, old: Oid, new: Oid) -> Result<Self> {
        Self::alike(repo, old, new, 50)
    }

    /// Also pairs files that have `percent` of their lines in common.
    pub(crate) fn alike(repo: &Repository, old: Oid, new: Oid, percent: u16) -> Result<Self> {
        // Git's limit; beyond it only identical files are found.
        const MOST: usize = 7000;
        let (old, new) = (repo.find_tree(old)?, repo.find_tree(new)?);
        let mut diff = repo.diff_tree_to_tree(Some(&old), Some(&new), None)?;
        let mut options = DiffFindOptions::new();
        diff.find_similar(Some(
            options
                .renames(true)
                .rename_threshold(percent)
                .rename_limit(MOST),
        ))?;
        let renamed = diff
            .deltas()
            .filter(|delta| delta.status() == Delta::Renamed);
        let path = |file: git2::DiffFile<'_>| {
            Some(std::str::from_utf8(file.path_bytes()?).ok()?.to_owned())
        };
        let paths =
            renamed.filter_map(|delta| Some((path(delta.old_file())?, path(delta.new_file())?)));
        Ok(Self(paths.collect()))
    }

    /// The path at the new pin.
    pub(crate) fn new_path<'a>(&'a self, old: &'a str) -> &'a str {
        self.0.get(old).map_or(old, String::as_str)
    }

    /// The path at the old pin, if it was another.
    pub(crate) fn old_path(&self, new: &str) -> Option<&str> {
        let mut pairs = self.0.iter();
        pairs.find_map(|(old, name)| (name == new).then_some(old.as_str()))
    }

    /// Trees of the old pin with the new paths. A file keeps its old path if one of the trees has a file at the new
    /// one, because a patch adds it there.
    pub(crate) fn follow<const N: usize>(
        &self,
        repo: &Repository,
        trees: [Oid; N],
    ) -> Result<[Oid; N]> {
        let mut indexes = Vec::new();
        for tree in trees {
            let mut index = Index::new()?;
            index.read_tree(&repo.find_tree(tree)?)?;
            indexes.push(index);
        }
        let has = |path: &str| {
            indexes
                .iter()
                .any(|index| index.get_path(path.as_ref(), 0).is_some())
        };
        let pairs = self.0.iter();
        let pairs: Vec<_> = pairs
            .filter(|(_, new)| self.0.contains_key(*new) || !has(new))
            .collect();
        let mut followed = trees;
        if pairs.is_empty() {
            return Ok(followed);
        }
        for (index, tree) in indexes.iter_mut().zip(&mut followed) {
            let mut moved = Vec::new();
            for (old, new) in &pairs {
                if let Some(mut entry) = index.get_path(old.as_ref(), 0) {
                    entry.path = (*new).clone().into_bytes();
                    moved.push(entry);
                }
            }
            for (old, _) in &pairs {
                index.remove_path(old.as_ref())?;
            }
            for entry in &moved {
                index.add(entry)?;
            }
            *tree = index.write_tree_to(repo)?;
        }
        Ok(followed)
    }
}

/// The series on the old pin, with the new pin's paths.
pub(crate) struct Old {
    pub(crate) renames: Renames,
    resolved: Resolved,
}

impl Old {
    pub(crate) fn new(repo: &Repository, series: &Series, base: Oid, new: Oid) -> Result<Self> {
        Ok(Self {
            renames: Renames::between(repo, base, new)?,
            resolved: series.resolve(repo, base)?,
        })
    }

    /// The tree before the first patch.
    pub(crate) fn base(&self, repo: &Repository) -> Result<Oid> {
        let [base] = self.renames.follow(repo, [self.resolved.base])?;
        Ok(base)
    }

    /// The trees before and after a patch.
    pub(crate) fn around(&self, repo: &Repository, at: usize) -> Result<(Oid, Oid)> {
        let (before, after) = self.resolved.around(at);
        let [before, after] = self.renames.follow(repo, [before, after])?;
        Ok((before, after))
    }
}
