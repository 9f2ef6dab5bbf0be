//! Upstream's commits between two pins, where the source has them.

use std::collections::BTreeSet;

use camino::{Utf8Path, Utf8PathBuf};
use git2::{Oid, Repository, Sort};

use crate::error::Result;

/// The repository on this machine that `--source` names, if it does.
pub(super) fn folder(source: &str) -> Option<String> {
    let path = Utf8PathBuf::from(source.strip_prefix("file://").unwrap_or(source));
    Repository::open(&path).is_ok().then(|| path.into_string())
}

/// The commits after `old` up to `new` that touch one of `paths`, newest first, each with its subject.
///
/// `None` where the history does not reach from one to the other: it is not there, or it is shallow.
pub(super) fn commits(
    folder: &str,
    old: Oid,
    new: Oid,
    paths: &BTreeSet<&str>,
) -> Result<Option<Vec<String>>> {
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
        let blob = |tree: &git2::Tree<'_>, path: &str| {
            let entry = tree.get_path(path.as_ref()).ok()?;
            Some((entry.id(), entry.filemode()))
        };
        // A merge that takes a file from one side did not touch it.
        let touches = |path: &&str| {
            commit.parents().all(|parent| {
                parent
                    .tree()
                    .is_ok_and(|parent| blob(&parent, path) != blob(&tree, path))
            })
        };
        if paths.iter().any(touches) {
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

/// The commit with this tree; the newest where there are more.
fn commit_of(repo: &Repository, tree: Oid) -> Result<Option<Oid>> {
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
