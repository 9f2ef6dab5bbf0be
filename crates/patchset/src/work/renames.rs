//! Upstream's renames between two pins. Patches rename nothing, so the old pin's trees are taken to the new names first;
//! after that every merge is one of files with the same path.

use std::collections::BTreeMap;

use git2::{Delta, DiffFindOptions, Index, Oid, Repository};

use crate::error::Result;
use crate::model::series::{Resolved, Series};

/// Old paths and new ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Renames(BTreeMap<String, String>);

impl Renames {
    /// The files that went and came back under another path, at least half of their lines as they were.
    pub(crate) fn between(repo: &Repository, old: Oid, new: Oid) -> Result<Self> {
        // Git's limit; beyond it only files that are equal are found.
        const MOST: usize = 7000;
        let (old, new) = (repo.find_tree(old)?, repo.find_tree(new)?);
        let mut diff = repo.diff_tree_to_tree(Some(&old), Some(&new), None)?;
        let mut options = DiffFindOptions::new();
        diff.find_similar(Some(options.renames(true).rename_limit(MOST)))?;
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

    /// Without those to a path that a patch adds: there the two files meet.
    pub(crate) fn beside(mut self, series: &Series) -> Self {
        self.0.retain(|_, new| !series.files.contains_key(new));
        self
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

    /// A tree of the old pin with the new paths.
    pub(crate) fn follow(&self, repo: &Repository, tree: Oid) -> Result<Oid> {
        if self.0.is_empty() {
            return Ok(tree);
        }
        let mut index = Index::new()?;
        index.read_tree(&repo.find_tree(tree)?)?;
        let mut moved = Vec::new();
        for (old, new) in &self.0 {
            if let Some(mut entry) = index.get_path(old.as_ref(), 0) {
                entry.path = new.clone().into_bytes();
                moved.push(entry);
            }
        }
        for old in self.0.keys() {
            index.remove_path(old.as_ref())?;
        }
        for entry in &moved {
            index.add(entry)?;
        }
        Ok(index.write_tree_to(repo)?)
    }

    /// The series on the old pin, with the new paths.
    pub(crate) fn follow_all(&self, repo: &Repository, old: &Resolved) -> Result<Resolved> {
        let trees = old.trees.iter().map(|tree| self.follow(repo, *tree));
        Ok(Resolved {
            base: self.follow(repo, old.base)?,
            trees: trees.collect::<Result<_>>()?,
        })
    }
}
