//! One patch file: a header with its reasons, and a diff that edits upstream files at exact lines.
//!
//! ```text
//! Subject: Give affine qmv_wide tiles of up to eight vectors
//! Why: what it is for
//!  (a line that begins with a space continues the field)
//! Upstream: where it stands upstream
//! Drop-When: what makes it unnecessary
//! Adds: none, or one path of patches/files a line
//! Test: what shows that it works
//!
//! diff --git a/path b/path
//! index <40 digits>..<40 digits> 100644
//! ...
//! ```
//!
//! The bytes are canonical: [`export`] of a patch's effect returns the same patch.

mod header;
mod scan;

use git2::{Delta, Diff, DiffFormat, DiffOptions, FileMode, ObjectType, Oid, Repository};

use crate::error::{Error, Result};
use crate::tree::{Mode, path};

use scan::Scan;

pub use header::{FIELDS, Header};

/// A patch from `patches/`.
#[derive(Debug, Clone)]
pub struct Patch {
    /// The name in the series; the file is `patches/<name>.patch`.
    pub name: String,
    /// The header with its reasons.
    pub header: Header,
    /// The files it edits, in the order of the diff.
    pub edits: Vec<Edit>,
    /// Lines added plus lines removed.
    pub changed_lines: usize,
    /// The blob id of the whole file.
    pub blob: Oid,
    /// The diff without the header.
    diff: Vec<u8>,
}

/// One edited file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The path in MLX's tree.
    pub path: String,
    /// The kind of file, before and after.
    pub mode: Mode,
    /// The id of its content before.
    pub before: Oid,
    /// The id of its content after.
    pub after: Oid,
}

impl Patch {
    /// Parses a patch file.
    ///
    /// # Errors
    /// A header without a required field, CRLF line ends, an empty or truncated diff, abbreviated ids, anything but
    /// edits of existing files, paths that lead out of the tree.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self> {
        let fail = |reason: &str| Err(Error::patch(name, reason));
        if bytes.is_empty() {
            return fail("it is empty");
        }
        let diff_start = find_line(bytes, b"diff --git ").unwrap_or(bytes.len());
        let (header, diff) = bytes.split_at(diff_start);
        if header.contains(&b'\r') {
            return Err(Error::LineEnds(format!("patches/{name}.patch")));
        }
        let header = std::str::from_utf8(header)
            .map_err(|_| Error::patch(name, "the header is not UTF-8"))?;
        let header = Header::parse(name, header)?;
        if diff.is_empty() && header.adds().next().is_none() {
            return fail("it changes nothing: it has no diff, and `Adds` names no file");
        }
        let scanned = Scan::of(name, diff)?;
        let edits = edits(name, diff)?;
        if !edits.iter().map(|edit| &edit.path).eq(&scanned.files) {
            return fail("libgit2 reads other paths in it than its lines have; it is malformed");
        }
        Ok(Self {
            name: name.to_owned(),
            header,
            edits,
            changed_lines: scanned.changed_lines,
            blob: Oid::hash_object(ObjectType::Blob, bytes)?,
            diff: diff.to_vec(),
        })
    }

    /// Applies the diff to a tree, exactly at its line numbers.
    ///
    /// The ids decide, not libgit2's reading of the context: each file must have the content the patch was made from,
    /// and must get the content that the patch specifies. Modes do not change; libgit2 would take the one in the patch.
    ///
    /// # Errors
    /// A file is missing or has another content or mode; the error distinguishes an already applied patch.
    pub fn apply(&self, repo: &Repository, tree: Oid) -> Result<Oid> {
        let fail = |reason: String| Err(Error::patch(&self.name, reason));
        let base = repo.find_tree(tree)?;
        for edit in &self.edits {
            let Ok(entry) = base.get_path(edit.path.as_ref()) else {
                return fail(format!(
                    "expected {} in tree {tree}, but it does not exist",
                    edit.path
                ));
            };
            if Mode::from_git(entry.filemode()) != Some(edit.mode) {
                return fail(format!(
                    "expected {} with mode {}, found {:o}; a diff changes no modes",
                    edit.path,
                    edit.mode.octal(),
                    entry.filemode()
                ));
            }
            if entry.id() == edit.after {
                return fail(format!(
                    "{} has the patched content already; the patch is applied",
                    edit.path
                ));
            }
            if entry.id() != edit.before {
                return fail(format!(
                    "expected {} as blob {}, found {}",
                    edit.path,
                    edit.before,
                    entry.id()
                ));
            }
        }
        if self.edits.is_empty() {
            return Ok(tree);
        }
        let diff = Diff::from_buffer(&self.diff)?;
        let mut index = match repo.apply_to_tree(&base, &diff, None) {
            Ok(index) => index,
            Err(error) => {
                return fail(format!(
                    "a hunk does not fit at its line: {}",
                    error.message()
                ));
            }
        };
        let patched = index.write_tree_to(repo)?;
        let result = repo.find_tree(patched)?;
        for edit in &self.edits {
            let found = result.get_path(edit.path.as_ref())?.id();
            if found != edit.after {
                return fail(format!(
                    "{} should become blob {}, but becomes {found}",
                    edit.path, edit.after
                ));
            }
        }
        Ok(patched)
    }
}

/// The canonical bytes of a patch: its header and the diff of two trees, with three lines of context, complete ids and
/// no renames. `ignore` lists files that are added whole and so are not in the diff.
///
/// # Errors
/// The trees differ in more than the content of files.
pub fn export(
    repo: &Repository,
    name: &str,
    header: &Header,
    before: Oid,
    after: Oid,
    ignore: &[&str],
) -> Result<Vec<u8>> {
    let mut options = DiffOptions::new();
    options
        .context_lines(3)
        .interhunk_lines(0)
        .id_abbrev(40)
        .indent_heuristic(false)
        .force_text(true);
    let (before, after) = (repo.find_tree(before)?, repo.find_tree(after)?);
    let diff = repo.diff_tree_to_tree(Some(&before), Some(&after), Some(&mut options))?;
    let mut bytes = header.to_text().into_bytes();
    let mut stray = None;
    diff.print(DiffFormat::Patch, |delta, _, line| {
        let path = delta
            .new_file()
            .path()
            .map(|path| path.display().to_string())
            .unwrap_or_default();
        if delta.status() == Delta::Added && ignore.contains(&path.as_str()) {
            return true;
        }
        let (old, new) = (delta.old_file().mode(), delta.new_file().mode());
        let changed = delta.status() != Delta::Modified || old != new;
        if changed || old == FileMode::Link {
            let what = if changed {
                "is added, deleted or changes its mode"
            } else {
                "is a link"
            };
            stray = Some(format!("{path} {what}"));
            return false;
        }
        if matches!(line.origin(), ' ' | '+' | '-') {
            bytes.push(line.origin() as u8);
        }
        bytes.extend_from_slice(line.content());
        true
    })
    .or_else(|error| if stray.is_some() { Ok(()) } else { Err(error) })?;
    match stray {
        Some(stray) => Err(Error::patch(
            name,
            format!(
                "{stray}; a diff only edits files (added files belong in patches/files and `Adds`)"
            ),
        )),
        None => Ok(bytes),
    }
}

fn edits(name: &str, diff: &[u8]) -> Result<Vec<Edit>> {
    if diff.is_empty() {
        return Ok(Vec::new());
    }
    let parsed = Diff::from_buffer(diff).map_err(|error| {
        Error::patch(
            name,
            format!("the diff is malformed or truncated: {}", error.message()),
        )
    })?;
    let mut edits = Vec::new();
    for delta in parsed.deltas() {
        let (old, new) = (delta.old_file(), delta.new_file());
        let text = |file: &git2::DiffFile<'_>| {
            file.path_bytes()
                .and_then(|path| String::from_utf8(path.to_vec()).ok())
        };
        let (Some(from), Some(to)) = (text(&old), text(&new)) else {
            return Err(Error::patch(name, "a path is not UTF-8"));
        };
        path::check(&from, &format!("patches/{name}.patch"))?;
        path::check(&to, &format!("patches/{name}.patch"))?;
        if delta.status() != Delta::Modified || from != to || old.mode() != new.mode() {
            let reason = format!(
                "{to} is added, deleted, renamed or changes its mode; a diff only edits (added files belong in patches/files and `Adds`)"
            );
            return Err(Error::patch(name, reason));
        }
        let mode = match old.mode() {
            FileMode::BlobExecutable => Mode::Executable,
            _ => Mode::Regular,
        };
        if edits.iter().any(|edit: &Edit| edit.path == to) {
            return Err(Error::patch(name, format!("{to} is in it twice")));
        }
        edits.push(Edit {
            path: to,
            mode,
            before: old.id(),
            after: new.id(),
        });
    }
    Ok(edits)
}

fn find_line(bytes: &[u8], start: &[u8]) -> Option<usize> {
    if bytes.starts_with(start) {
        return Some(0);
    }
    bytes
        .windows(start.len() + 1)
        .position(|window| window[0] == b'\n' && &window[1..] == start)
        .map(|at| at + 1)
}
