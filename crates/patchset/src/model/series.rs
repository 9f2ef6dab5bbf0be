//! The patches in their order, and the trees that they produce.

use std::collections::{BTreeMap, BTreeSet};

use camino::Utf8Path;
use fs_err as fs;
use git2::{Index, IndexEntry, IndexTime, ObjectType, Oid, Repository};

use crate::error::{Error, Result};
use crate::model::patch::{self, Patch};
use crate::read;
use crate::tree::{Entry, File, Listing, Mode, Snapshot};

/// `patches/`: the series, its patches, and the added files.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// The patches, in order.
    pub patches: Vec<Patch>,
    /// `patches/files`, by path in MLX's tree.
    pub files: BTreeMap<String, (Entry, File)>,
}

/// The trees of a series applied to a base.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The tree before the first patch.
    pub base: Oid,
    /// The tree after each patch.
    pub trees: Vec<Oid>,
}

impl Resolved {
    /// The tree after the last patch.
    pub fn final_tree(&self) -> Oid {
        self.trees.last().copied().unwrap_or(self.base)
    }

    /// The trees before and after a patch.
    pub fn around(&self, at: usize) -> (Oid, Oid) {
        let before = at
            .checked_sub(1)
            .map_or(self.base, |before| self.trees[before]);
        (before, self.trees[at])
    }
}

impl Series {
    /// Reads `patches/`.
    ///
    /// # Errors
    /// A malformed patch; a name in `series` without a patch, or the reverse; a patch that is not a file; a file in
    /// `patches/files` that no patch or more than one adds.
    pub fn load(folder: &Utf8Path) -> Result<Self> {
        let names = names(&read::text(&folder.join("series"))?)?;
        let mut faults = compare_names(folder, &names)?;
        let mut patches = Vec::new();
        for name in &names {
            let file = folder.join(format!("{name}.patch"));
            // Entries that are not files have already been reported.
            if kind(&file)? == Some("a file") {
                patches.push(Patch::parse(name, &read::short(&file)?)?);
            }
        }
        let files = match kind(&folder.join("files"))? {
            None => BTreeMap::new(),
            Some("a folder") => read_files(&folder.join("files"))?,
            Some(other) => {
                faults.push(format!("files is {other}; expected a folder"));
                BTreeMap::new()
            }
        };
        faults.extend(compare_files(&patches, &files));
        if faults.is_empty() {
            Ok(Self { patches, files })
        } else {
            Err(Error::Series(faults))
        }
    }

    /// The patches' names, in order.
    pub fn names(&self) -> Vec<String> {
        self.patches
            .iter()
            .map(|patch| patch.name.clone())
            .collect()
    }

    /// The position of a patch in the series.
    ///
    /// # Errors
    /// There is no such patch.
    pub fn position(&self, name: &str) -> Result<usize> {
        let at = self.patches.iter().position(|patch| patch.name == name);
        at.ok_or_else(|| Error::NoSuchPatch {
            wanted: name.to_owned(),
            known: self.names(),
        })
    }

    /// Lines added plus lines removed, over all patches.
    pub fn changed_lines(&self) -> usize {
        self.patches.iter().map(|patch| patch.changed_lines).sum()
    }

    /// The files that a patch adds, with the ids of their content.
    pub fn added_by<'a>(&'a self, patch: &'a Patch) -> impl Iterator<Item = (&'a str, Oid)> {
        patch
            .header
            .adds()
            .filter_map(|path| Some((path, self.files.get(path)?.0.blob)))
    }

    /// Reads the files that a patch adds from a tree that has them.
    pub(crate) fn take_files(&mut self, repo: &Repository, patch: &Patch, tree: Oid) -> Result<()> {
        let tree = repo.find_tree(tree)?;
        for path in patch.header.adds() {
            let found = tree.get_path(path.as_ref()).ok();
            let found =
                found.and_then(|entry| Some((Mode::from_git(entry.filemode())?, entry.id())));
            let (mode, blob) = found.ok_or_else(|| {
                Error::patch(
                    &patch.name,
                    format!("it adds {path}, but the file no longer exists"),
                )
            })?;
            let bytes = repo.find_blob(blob)?.content().to_vec();
            self.files.insert(
                path.to_owned(),
                (Entry { mode, blob }, File { mode, bytes }),
            );
        }
        Ok(())
    }

    /// Applies the patches one after the other. `repo` gets the objects; it must have the base.
    ///
    /// # Errors
    /// The first patch that does not apply exactly.
    pub fn resolve(&self, repo: &Repository, base: Oid) -> Result<Resolved> {
        let mut trees = Vec::with_capacity(self.patches.len());
        let mut tree = base;
        for patch in &self.patches {
            tree = patch.apply(repo, tree)?;
            tree = self.add_files(repo, patch, tree)?;
            trees.push(tree);
        }
        Ok(Resolved { base, trees })
    }

    /// Reasons to reject resolved patches: trees that cannot be written on every file system, and patches that an
    /// export would write differently. `patch lint` reports all of them; nothing is applied or locked until there are
    /// none.
    ///
    /// # Errors
    /// Objects that cannot be read.
    pub(crate) fn faults(&self, repo: &Repository, resolved: &Resolved) -> Result<Vec<Error>> {
        let mut faults = Vec::new();
        match Listing::of_tree(repo, resolved.final_tree()) {
            Err(error @ Error::Git(_)) => return Err(error),
            listing => faults.extend(listing.err()),
        }
        for (at, patch) in self.patches.iter().enumerate() {
            let (before, after) = resolved.around(at);
            let adds: Vec<_> = patch.header.adds().collect();
            match patch::export(repo, &patch.name, &patch.header, before, after, &adds) {
                Ok(text) if Oid::hash_object(ObjectType::Blob, &text)? == patch.blob => {}
                Ok(_) => faults.push(Error::NotCanonical(patch.name.clone())),
                Err(error) => faults.push(error),
            }
        }
        Ok(faults)
    }

    fn add_files(&self, repo: &Repository, patch: &Patch, tree: Oid) -> Result<Oid> {
        let added: Vec<_> = patch
            .header
            .adds()
            .filter_map(|path| Some((path, self.files.get(path)?)))
            .collect();
        if added.is_empty() {
            return Ok(tree);
        }
        let base = repo.find_tree(tree)?;
        let mut index = Index::new()?;
        index.read_tree(&base)?;
        for (path, (entry, file)) in added {
            let fail = |reason| Err(Error::patch(&patch.name, reason));
            if base.get_path(path.as_ref()).is_ok() {
                return fail(format!("it adds {path}, which is in tree {tree} already"));
            }
            // An index would drop the file in favour of the folder.
            for (end, _) in path.match_indices('/') {
                let above = &path[..end];
                let found = base.get_path(above.as_ref()).ok();
                if found.is_some_and(|entry| entry.kind() != Some(ObjectType::Tree)) {
                    return fail(format!(
                        "it adds {path}, but {above} is a file in tree {tree}"
                    ));
                }
            }
            repo.odb()?.write(ObjectType::Blob, &file.bytes)?;
            index.add(&index_entry(path, *entry))?;
        }
        Ok(index.write_tree_to(repo)?)
    }
}

/// An entry for an index; fields that a tree does not record are zero.
fn index_entry(path: &str, entry: Entry) -> IndexEntry {
    let never = IndexTime::new(0, 0);
    let mode = u32::from_str_radix(entry.mode.octal(), 8).unwrap_or_default();
    IndexEntry {
        ctime: never,
        mtime: never,
        dev: 0,
        ino: 0,
        mode,
        uid: 0,
        gid: 0,
        file_size: 0,
        id: entry.blob,
        flags: 0,
        flags_extended: 0,
        path: path.as_bytes().to_vec(),
    }
}

/// Whether a patch may have this name, which is also a file name.
pub(crate) fn is_patch_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

/// The name in a line of `patches/series`; empty if the line has none.
pub(crate) fn name_in(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

/// Parses the text of `patches/series`: one name per line, `#` starts a comment.
///
/// # Errors
/// An invalid name, or a name that is listed twice.
pub fn names(text: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let name = name_in(line);
        if name.is_empty() {
            continue;
        }
        let message = if !is_patch_name(name) {
            format!("expected a patch name of a-z, 0-9 and -, found {name:?}")
        } else if names.iter().any(|other| other == name) {
            format!("{name} is listed twice")
        } else {
            names.push(name.to_owned());
            continue;
        };
        return Err(Error::Format {
            file: "patches/series".into(),
            line: number + 1,
            message,
        });
    }
    Ok(names)
}

fn compare_names(folder: &Utf8Path, names: &[String]) -> Result<Vec<String>> {
    let mut there = BTreeSet::new();
    for entry in folder.read_dir_utf8()? {
        let entry = entry?;
        if let Some(name) = entry.file_name().strip_suffix(".patch") {
            there.insert(name.to_owned());
        }
    }
    let listed: BTreeSet<_> = names.iter().cloned().collect();
    let missing = listed
        .difference(&there)
        .map(|name| format!("series lists {name}, but {name}.patch does not exist"));
    let stray = there
        .difference(&listed)
        .map(|name| format!("{name}.patch is not listed in series"));
    let mut faults: Vec<_> = missing.chain(stray).collect();
    for name in &there {
        let kind = kind(&folder.join(format!("{name}.patch")))?;
        if let Some(other) = kind.filter(|kind| *kind != "a file") {
            faults.push(format!("{name}.patch is {other}; expected a file"));
        }
    }
    Ok(faults)
}

/// Describes what is at a path; `None` if nothing is.
fn kind(path: &Utf8Path) -> Result<Option<&'static str>> {
    if !read::is_there(path)? {
        return Ok(None);
    }
    let kind = fs::symlink_metadata(path)?.file_type();
    Ok(Some(if kind.is_file() {
        "a file"
    } else if kind.is_dir() {
        "a folder"
    } else if kind.is_symlink() {
        "a link"
    } else {
        "a pipe or a device"
    }))
}

fn read_files(folder: &Utf8Path) -> Result<BTreeMap<String, (Entry, File)>> {
    let snapshot = Snapshot::of_dir(folder)?;
    let windows = |file: &File| file.bytes.windows(2).any(|pair| pair == b"\r\n");
    if let Some((path, _)) = snapshot.0.iter().find(|(_, file)| windows(file)) {
        return Err(Error::LineEnds(format!("patches/files/{path}")));
    }
    let listing = snapshot.listing()?;
    Ok(snapshot
        .0
        .into_iter()
        .zip(listing.0)
        .map(|((path, file), (_, entry))| (path, (entry, file)))
        .collect())
}

fn compare_files(patches: &[Patch], files: &BTreeMap<String, (Entry, File)>) -> Vec<String> {
    let mut owners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for patch in patches {
        for path in patch.header.adds() {
            owners.entry(path).or_default().push(&patch.name);
        }
    }
    let unowned = files
        .keys()
        .filter(|path| !owners.contains_key(path.as_str()))
        .map(|path| format!("no patch adds files/{path}"));
    let missing = owners
        .iter()
        .filter(|(path, _)| !files.contains_key(**path))
        .map(|(path, names)| {
            format!(
                "{} adds {path}, but files/{path} does not exist",
                names.join(" and ")
            )
        });
    let shared = owners
        .iter()
        .filter(|(_, names)| names.len() > 1)
        .map(|(path, names)| {
            format!(
                "files/{path} is added more than once, by {}",
                names.join(" and ")
            )
        });
    unowned.chain(missing).chain(shared).collect()
}
