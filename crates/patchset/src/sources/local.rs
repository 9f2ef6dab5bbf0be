//! The argument of `--source`: a git repository, an archive or a folder of files. They are never confused: the files of
//! a work tree are not a commit, and a repository that cannot be opened is not treated as a folder of files.

use camino::Utf8Path;
use git2::{Commit, ErrorCode, Oid, Repository};

use super::archive;
use super::carrier::Package;
use crate::error::{Error, RepositoryFault, Result};
use crate::model::manifest::{Pin, Source};
use crate::read;
use crate::tree::Snapshot;

/// The kind of content at a path.
pub(crate) enum Local {
    /// A repository, with or without a work tree.
    Repository(Repository),
    /// A file, which may be an archive.
    Archive,
    /// A folder without a repository.
    Folder,
}

impl Local {
    /// Examines a path.
    ///
    /// # Errors
    /// There is nothing, or a repository that cannot be opened.
    pub(crate) fn at(path: &Utf8Path) -> Result<Self> {
        if path.is_file() {
            return Ok(Self::Archive);
        }
        if !path.is_dir() {
            let found = if read::is_there(path)? {
                "found neither a file nor a folder"
            } else {
                "it does not exist"
            };
            let message = format!("expected a folder, a git repository or an archive; {found}");
            return Err(Error::source(path.as_str(), message));
        }
        let bare = ["HEAD", "objects", "refs"];
        if read::is_there(&path.join(".git"))? || bare.iter().all(|part| path.join(part).exists()) {
            return match Repository::open(path) {
                Ok(repo) => Ok(Self::Repository(repo)),
                Err(error) => Err(fault(
                    path,
                    RepositoryFault::Unreadable(error.message().to_owned()),
                )),
            };
        }
        Ok(Self::Folder)
    }
}

/// Reads the files; from a repository, the expected tree or that of the pin's tag or commit, whatever is checked out.
pub(super) fn bring(path: &Utf8Path, pin: &Pin, wanted: Oid) -> Result<Snapshot> {
    match Local::at(path)? {
        Local::Archive => bring_archive(path, pin),
        Local::Folder => Snapshot::of_dir(path),
        Local::Repository(repo) => {
            let tree = in_repository(path, tree_in(&repo, path, pin, wanted))?;
            in_repository(path, Snapshot::of_tree(&repo, tree))
        }
    }
}

fn tree_in(repo: &Repository, path: &Utf8Path, pin: &Pin, wanted: Oid) -> Result<Oid> {
    if repo.find_tree(wanted).is_ok() {
        return Ok(wanted);
    }
    let tags: Vec<_> = pin.tag.iter().cloned().collect();
    let named = format!("MLX {}", pin.version);
    match find_commit(repo, path, named, &tags, pin.commit.as_deref()) {
        Ok((commit, _)) => Ok(repo.find_tree(commit.tree_id())?.id()),
        Err(Error::Repository {
            fault:
                RepositoryFault::Lacks {
                    wanted: named,
                    mut names,
                },
            ..
        }) => {
            names.push(format!("tree {wanted}"));
            let wanted = named;
            Err(fault(path, RepositoryFault::Lacks { wanted, names }))
        }
        Err(error) => Err(error),
    }
}

/// The commit of the first existing tag, with that tag; else the commit that starts with the digits. `wanted` describes
/// in an error what was looked for.
///
/// # Errors
/// The repository has none of them, or lacks their objects.
pub(crate) fn find_commit<'a>(
    repo: &'a Repository,
    path: &Utf8Path,
    wanted: String,
    tags: &[String],
    digits: Option<&str>,
) -> Result<(Commit<'a>, Option<String>)> {
    for tag in tags {
        match repo.find_reference(&format!("refs/tags/{tag}")) {
            Ok(reference) => {
                let commit = reference.peel_to_commit().map_err(Error::from);
                return Ok((in_repository(path, commit)?, Some(tag.clone())));
            }
            Err(error) if error.code() == ErrorCode::NotFound => {}
            Err(error) => return in_repository(path, Err(error.into())),
        }
    }
    if let Some(digits) = digits {
        match repo.find_commit_by_prefix(digits) {
            Ok(commit) => return Ok((commit, None)),
            Err(error) if error.code() == ErrorCode::NotFound => {}
            Err(error) => return Err(Error::source(path.as_str(), error.message())),
        }
    }
    let tags = tags.iter().map(|tag| format!("tag {tag}"));
    let commit = digits.map(|digits| format!("commit {digits}"));
    let names = tags.chain(commit).collect();
    Err(fault(path, RepositoryFault::Lacks { wanted, names }))
}

/// Reports missing objects as a fault of the repository, not of the cache.
pub(crate) fn complete<T>(path: &Utf8Path, result: Result<T>) -> Result<T> {
    match result {
        Err(Error::Git(error)) if error.code() == ErrorCode::NotFound => Err(fault(
            path,
            RepositoryFault::Incomplete(error.message().to_owned()),
        )),
        result => result,
    }
}

/// Names the repository in an error that came from reading its objects.
fn in_repository<T>(path: &Utf8Path, result: Result<T>) -> Result<T> {
    match complete(path, result) {
        Err(Error::Git(error)) => Err(Error::source(path.as_str(), error.message())),
        result => result,
    }
}

fn fault(path: &Utf8Path, fault: RepositoryFault) -> Error {
    Error::Repository {
        path: path.to_owned(),
        fault,
    }
}

fn bring_archive(path: &Utf8Path, pin: &Pin) -> Result<Snapshot> {
    let bytes = archive::read_file(path)?;
    let carrier = pin.sources.iter().find_map(|source| match source {
        Source::Carrier(carrier) => {
            let name = format!("{}-{}.crate", carrier.name, carrier.version);
            (path.file_name() == Some(&name)).then_some(carrier)
        }
        _ => None,
    });
    match carrier {
        Some(carrier) => {
            Package::Unpacked(archive::unpack(path.as_str(), &bytes, None)?).tree(carrier)
        }
        None => archive::unpack(path.as_str(), &bytes, None),
    }
}
