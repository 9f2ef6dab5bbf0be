//! Trees as git sees them: paths, modes and blob ids, and the id of the whole tree.
//!
//! A tree id depends only on content, the executable bit and links, so files from any source can be compared with the
//! upstream commit.

pub(crate) mod bounds;
pub(crate) mod difference;
pub mod path;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use git2::{ObjectType, Oid, Repository};
use rayon::prelude::*;
use walkdir::WalkDir;

use crate::error::{Error, Result};

use bounds::{Bounds, Tally};

pub use difference::Difference;

/// Parses a tree id of 40 digits.
///
/// # Errors
/// Anything else, including an abbreviated id.
pub fn parse_id(text: &str) -> Result<Oid, String> {
    crate::read::oid(text)
}

/// The kind of a file; git knows no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// An ordinary file.
    Regular,
    /// A file with the owner's executable bit.
    Executable,
    /// A symbolic link; its content is the target.
    Link,
}

impl Mode {
    /// The mode in the form that git writes into a tree.
    pub fn octal(self) -> &'static str {
        match self {
            Self::Regular => "100644",
            Self::Executable => "100755",
            Self::Link => "120000",
        }
    }

    /// The mode from git's number.
    pub fn from_git(mode: i32) -> Option<Self> {
        match mode {
            0o100_644 => Some(Self::Regular),
            0o100_755 => Some(Self::Executable),
            0o120_000 => Some(Self::Link),
            _ => None,
        }
    }

    /// The mode from the permission bits of an ordinary file.
    pub fn from_permissions(bits: u32) -> Self {
        if bits & 0o100 == 0 {
            Self::Regular
        } else {
            Self::Executable
        }
    }
}

/// One file of a [`Listing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub mode: Mode,
    /// The id of the content.
    pub blob: Oid,
}

/// One file of a [`Snapshot`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub mode: Mode,
    pub bytes: Vec<u8>,
}

/// A tree's files with their contents, in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot(pub BTreeMap<String, File>);

/// A tree's files with the ids of their contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing(pub BTreeMap<String, Entry>);

impl Snapshot {
    /// Reads a folder into memory. A `.git` at its top is left out.
    ///
    /// # Errors
    /// Files that cannot be read, paths that a tree must not have, and more than the limits (`Bounds`).
    pub fn of_dir(root: &Utf8Path) -> Result<Self> {
        Self::of_dir_within(root, &Bounds::default())
    }

    pub(crate) fn of_dir_within(root: &Utf8Path, bounds: &Bounds) -> Result<Self> {
        let mut tally = bounds.tally(root.as_str());
        let paths = walk(root, Skip::TopGit, |entry| {
            tally.entry()?;
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => tally.bytes(metadata.len()),
                // A folder's size means nothing; what cannot be examined cannot be read either.
                _ => Ok(()),
            }
        })?;
        let files = paths
            .into_par_iter()
            .map(|path| {
                let file = read(&root.join(&path))?;
                Ok((path, file))
            })
            .collect::<Result<BTreeMap<_, _>>>()?;
        let snapshot = Self(files);
        snapshot.check_paths(root.as_str())?;
        Ok(snapshot)
    }

    /// The files of a tree object.
    ///
    /// # Errors
    /// Missing objects, paths that a tree must not have, and more than the limits.
    pub fn of_tree(repo: &Repository, tree: Oid) -> Result<Self> {
        let listing = Listing::of_tree(repo, tree)?;
        listing.check_size(repo, tree)?;
        let files = listing.0.into_iter();
        let files = files.map(|(path, Entry { mode, blob })| {
            let bytes = repo.find_blob(blob)?.content().to_vec();
            Ok((path, File { mode, bytes }))
        });
        let snapshot = Self(files.collect::<Result<_>>()?);
        snapshot.check_paths(&format!("tree {tree}"))?;
        Ok(snapshot)
    }

    /// Checks every path and link.
    ///
    /// # Errors
    /// See [`path`].
    pub fn check_paths(&self, origin: &str) -> Result<()> {
        for path in self.0.keys() {
            path::check(path, origin)?;
        }
        let links = self.0.iter().filter(|(_, file)| file.mode == Mode::Link);
        check_links(
            links.map(|(path, file)| (path.as_str(), file.bytes.as_slice())),
            origin,
        )?;
        path::check_together(self.0.keys().map(String::as_str), origin)
    }

    /// Hashes every file, on all cores.
    pub fn listing(&self) -> Result<Listing> {
        self.0
            .par_iter()
            .map(|(path, file)| {
                let blob = Oid::hash_object(ObjectType::Blob, &file.bytes)?;
                Ok((
                    path.clone(),
                    Entry {
                        mode: file.mode,
                        blob,
                    },
                ))
            })
            .collect::<Result<_>>()
            .map(Listing)
    }
}

impl Listing {
    /// Hashes every file of a folder, on all cores. Nothing is left out and no time is trusted.
    ///
    /// # Errors
    /// Files that cannot be read and names that are not UTF-8.
    pub fn of_dir(root: &Utf8Path) -> Result<Self> {
        walk(root, Skip::Nothing, |_| Ok(()))?
            .into_par_iter()
            .map(|path| {
                let entry = hash(&root.join(&path))?;
                Ok((path, entry))
            })
            .collect::<Result<_>>()
            .map(Listing)
    }

    /// The files of a tree object.
    ///
    /// # Errors
    /// Missing objects, entries that are not files, links or folders, paths and links that a tree must not have, and
    /// more entries than the limit.
    pub fn of_tree(repo: &Repository, tree: Oid) -> Result<Self> {
        let mut files = BTreeMap::new();
        let origin = format!("tree {tree}");
        collect(
            repo,
            tree,
            "",
            &mut Bounds::default().tally(&origin),
            &mut files,
        )?;
        let listing = Self(files);
        let (mut tally, odb) = (Bounds::default().tally(&origin), repo.odb()?);
        let mut links = Vec::new();
        for (path, entry) in &listing.0 {
            if entry.mode == Mode::Link {
                // Before it is read.
                tally.bytes(odb.read_header(entry.blob)?.0 as u64)?;
                links.push((path.as_str(), repo.find_blob(entry.blob)?));
            }
        }
        check_links(
            links.iter().map(|(path, blob)| (*path, blob.content())),
            &origin,
        )?;
        path::check_together(listing.0.keys().map(String::as_str), &origin)?;
        Ok(listing)
    }

    /// Checks that all files of `tree` together are within the limits, without reading them.
    pub(crate) fn check_size(&self, repo: &Repository, tree: Oid) -> Result<()> {
        let origin = format!("tree {tree}");
        let (mut tally, odb) = (Bounds::default().tally(&origin), repo.odb()?);
        let mut entries = self.0.values();
        entries.try_for_each(|entry| tally.bytes(odb.read_header(entry.blob)?.0 as u64))
    }

    /// The git tree id of these files.
    pub fn tree_id(&self) -> Result<Oid> {
        self.build(&mut |kind, bytes| Ok(Oid::hash_object(kind, bytes)?))
    }

    /// Builds the tree objects from the leaves up and passes each to `object`; returns the root's id.
    pub(crate) fn build(
        &self,
        object: &mut dyn FnMut(ObjectType, &[u8]) -> Result<Oid>,
    ) -> Result<Oid> {
        // Git sorts a folder as if its name ended in `/`, and so does the byte order of complete paths: one pass is
        // enough.
        let entries: Vec<_> = self
            .0
            .iter()
            .map(|(path, entry)| (path.as_str(), *entry))
            .collect();
        build_level(&entries, 0, object)
    }

    /// The differences of `found` from `self`.
    pub fn difference(&self, found: &Self) -> Difference {
        let missing = self
            .0
            .keys()
            .filter(|path| !found.0.contains_key(*path))
            .cloned()
            .collect();
        let added = found
            .0
            .keys()
            .filter(|path| !self.0.contains_key(*path))
            .cloned()
            .collect();
        let both = || {
            self.0
                .iter()
                .filter_map(|(path, entry)| Some((path, entry, found.0.get(path)?)))
        };
        let changed = both()
            .filter(|(_, old, new)| old.blob != new.blob)
            .map(|(path, ..)| path.clone())
            .collect();
        let modes = both()
            .filter(|(_, old, new)| old.blob == new.blob && old.mode != new.mode)
            .map(|(path, ..)| path.clone())
            .collect();
        Difference {
            missing,
            added,
            changed,
            modes,
        }
    }
}

#[derive(PartialEq)]
enum Skip {
    Nothing,
    TopGit,
}

/// The relative paths of all files and links below `root`. `look` is called for every entry first, including folders.
fn walk(
    root: &Utf8Path,
    skip: Skip,
    mut look: impl FnMut(&walkdir::DirEntry) -> Result<()>,
) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    let entries = WalkDir::new(root).into_iter().filter_entry(|entry| {
        !(skip == Skip::TopGit && entry.depth() == 1 && entry.file_name() == ".git")
    });
    for entry in entries {
        let entry = entry.map_err(std::io::Error::from)?;
        look(&entry)?;
        let kind = entry.file_type();
        if kind.is_dir() {
            continue;
        }
        let full = Utf8PathBuf::from_path_buf(entry.into_path())
            .map_err(|path| Error::source(path.display().to_string(), "the name is not UTF-8"))?;
        if !kind.is_file() && !kind.is_symlink() {
            return Err(Error::source(full, "neither a file, a link nor a folder"));
        }
        let relative = full
            .strip_prefix(root)
            .map_err(|_| Error::source(full.as_str(), "left its folder"))?;
        paths.push(relative.as_str().to_owned());
    }
    Ok(paths)
}

fn read(path: &Utf8Path) -> Result<File> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_symlink() {
        let target = fs::read_link(path)?;
        return Ok(File {
            mode: Mode::Link,
            bytes: target.into_os_string().into_encoded_bytes(),
        });
    }
    Ok(File {
        mode: Mode::from_permissions(metadata.mode()),
        bytes: fs::read(path)?,
    })
}

/// The id of a file's content. A large file is read in pieces.
fn hash(path: &Utf8Path) -> Result<Entry> {
    const LARGE: u64 = 64 << 20;
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_file() && metadata.len() > LARGE {
        return Ok(Entry {
            mode: Mode::from_permissions(metadata.mode()),
            blob: Oid::hash_file(ObjectType::Blob, path)?,
        });
    }
    let file = read(path)?;
    Ok(Entry {
        mode: file.mode,
        blob: Oid::hash_object(ObjectType::Blob, &file.bytes)?,
    })
}

/// Checks the links of a tree, each by itself and all together.
fn check_links<'a>(
    links: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    origin: &str,
) -> Result<()> {
    let mut targets = Vec::new();
    for (path, target) in links {
        let target = std::str::from_utf8(target).map_err(|_| {
            Error::source(
                origin,
                format!("the link {path:?} has a target that is not UTF-8"),
            )
        })?;
        path::check_link(path, target, origin)?;
        targets.push((path, target));
    }
    path::check_chains(targets, origin)
}

fn collect(
    repo: &Repository,
    tree: Oid,
    prefix: &str,
    tally: &mut Tally<'_>,
    files: &mut BTreeMap<String, Entry>,
) -> Result<()> {
    for item in &repo.find_tree(tree)? {
        tally.entry()?;
        let name = item
            .name()
            .map_err(|_| Error::source(format!("tree {tree}"), "a name is not UTF-8"))?;
        let path = format!("{prefix}{name}");
        // Before the folder is entered: the limits of paths also limit this recursion.
        path::check(&path, tally.origin())?;
        match (item.kind(), Mode::from_git(item.filemode())) {
            (Some(ObjectType::Tree), _) => {
                collect(repo, item.id(), &format!("{path}/"), tally, files)?;
            }
            (Some(ObjectType::Blob), Some(mode)) => {
                files.insert(
                    path,
                    Entry {
                        mode,
                        blob: item.id(),
                    },
                );
            }
            _ => {
                let message = format!(
                    "{path} has mode {:o}; only files and links are supported",
                    item.filemode()
                );
                return Err(Error::source(format!("tree {tree}"), message));
            }
        }
    }
    Ok(())
}

fn build_level(
    entries: &[(&str, Entry)],
    prefix: usize,
    object: &mut dyn FnMut(ObjectType, &[u8]) -> Result<Oid>,
) -> Result<Oid> {
    let mut tree = Vec::new();
    let mut rest = entries;
    while let Some(&(path, entry)) = rest.first() {
        let name = &path[prefix..];
        let (mode, name, id, taken) = match name.find('/') {
            None => (entry.mode.octal(), name, entry.blob, 1),
            Some(end) => {
                let folder = &path[..=prefix + end];
                let taken = rest.partition_point(|(path, _)| path.starts_with(folder));
                let id = build_level(&rest[..taken], folder.len(), object)?;
                ("40000", &name[..end], id, taken)
            }
        };
        tree.extend_from_slice(mode.as_bytes());
        tree.push(b' ');
        tree.extend_from_slice(name.as_bytes());
        tree.push(0);
        tree.extend_from_slice(id.as_bytes());
        rest = &rest[taken..];
    }
    object(ObjectType::Tree, &tree)
}
