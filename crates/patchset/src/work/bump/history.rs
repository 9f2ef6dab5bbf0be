//! Upstream's commits between two pins, if the source has them.

use std::collections::BTreeSet;

use camino::{Utf8Path, Utf8PathBuf};
use git2::{ErrorClass, ErrorCode, Oid, Repository, Sort, Tree};

use crate::error::Result;

/// The local repository that `--source` names, if it names one.
pub(super) fn folder(source: &str) -> Option<String> {
    let path = Utf8PathBuf::from(source.strip_prefix("file://").unwrap_or(source));
    Repository::open(&path).is_ok().then(|| path.into_string())
}

/// The commits after `old` up to `new` that touch one of `paths`, newest first, each with its subject.
///
/// `None` if the history does not connect the two: it is missing, shallow, or lacks objects.
pub(super) fn commits(
    folder: &str,
    old: Oid,
    new: Oid,
    paths: &BTreeSet<&str>,
) -> Result<Option<Vec<String>>> {
    match listed(folder, old, new, paths) {
        // For a folder on the way to a path, only the error class shows this.
        Err(error) if error.code() == ErrorCode::NotFound || error.class() == ErrorClass::Odb => {
            Ok(None)
        }
        lines => Ok(lines?),
    }
}

fn listed(
    folder: &str,
    old: Oid,
    new: Oid,
    paths: &BTreeSet<&str>,
) -> Result<Option<Vec<String>>, git2::Error> {
    let Ok(repo) = Repository::open(Utf8Path::new(folder)) else {
        return Ok(None);
    };
    let (Some(old), Some(new)) = (commit_of(&repo, old)?, commit_of(&repo, new)?) else {
        return Ok(None);
    };
    if !repo.graph_descendant_of(new, old)? {
        return Ok(None);
    }
    let mut walk = repo.revwalk()?;
    walk.set_sorting(Sort::TOPOLOGICAL)?;
    walk.push(new)?;
    walk.hide(old)?;
    let mut lines = Vec::new();
    for id in walk {
        let commit = repo.find_commit(id?)?;
        let tree = commit.tree()?;
        let parents = (0..commit.parent_count())
            .map(|at| commit.parent(at)?.tree())
            .collect::<Result<Vec<_>, _>>()?;
        let mut touched = false;
        for path in paths {
            let found = file(&tree, path)?;
            // A merge that takes a file from one side did not touch it.
            let mut same = false;
            for parent in &parents {
                same |= file(parent, path)? == found;
            }
            touched |= !same;
        }
        if touched {
            let id = commit.id().to_string();
            lines.push(format!(
                "{} {}",
                &id[..7],
                commit.summary().ok().flatten().unwrap_or_default()
            ));
        }
    }
    Ok(Some(lines))
}

/// The entry of a tree at a path.
fn file(tree: &Tree<'_>, path: &str) -> Result<Option<(Oid, i32)>, git2::Error> {
    match tree.get_path(path.as_ref()) {
        Ok(entry) => Ok(Some((entry.id(), entry.filemode()))),
        // The path itself, not an object on the way to it.
        Err(error) if error.class() == ErrorClass::Tree => Ok(None),
        Err(error) => Err(error),
    }
}

/// The commit with this tree; the newest if there are several.
fn commit_of(repo: &Repository, tree: Oid) -> Result<Option<Oid>, git2::Error> {
    let mut walk = repo.revwalk()?;
    walk.set_sorting(Sort::TOPOLOGICAL)?;
    walk.push_glob("refs/*")?;
    for id in walk {
        let Ok(id) = id else { return Ok(None) };
        if repo.find_commit(id)?.tree_id() == tree {
            return Ok(Some(id));
        }
    }
    Ok(None)
}
