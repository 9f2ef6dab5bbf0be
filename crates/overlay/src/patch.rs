//! One patch file: a header that says why it exists, and a diff that edits upstream files at exact places.
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
//! The bytes are canonical: [`export`] of what a patch does gives the patch back.

use git2::{Delta, Diff, DiffFormat, DiffOptions, ObjectType, Oid, Repository};

use crate::error::{Error, Result};
use crate::path;

/// The header's fields, in their order.
pub const FIELDS: [&str; 6] = ["Subject", "Why", "Upstream", "Drop-When", "Adds", "Test"];

/// A patch as it lies in `patches/`.
#[derive(Debug, Clone)]
pub struct Patch {
    /// Its name in the series; the file is `patches/<name>.patch`.
    pub name: String,
    /// Why it exists.
    pub header: Header,
    /// The files it edits, in the order of the diff.
    pub edits: Vec<Edit>,
    /// Lines added plus lines removed.
    pub changed_lines: usize,
    /// The blob id of the whole file.
    pub blob: Oid,
    /// The diff alone.
    diff: Vec<u8>,
}

/// One edited file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Its path in MLX's tree.
    pub path: String,
    /// The id of its content before.
    pub before: Oid,
    /// The id of its content after.
    pub after: Oid,
}

/// The header of a patch: for each of [`FIELDS`] its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header([Vec<String>; FIELDS.len()]);

impl Header {
    /// The lines of a field.
    ///
    /// # Panics
    /// `name` is none of [`FIELDS`].
    pub fn field(&self, name: &str) -> &[String] {
        let index = FIELDS
            .iter()
            .position(|field| *field == name)
            .expect("a field of the header");
        &self.0[index]
    }

    /// The first line of `Subject`.
    pub fn subject(&self) -> &str {
        self.field("Subject").first().map_or("", String::as_str)
    }

    /// The files of `patches/files` that the patch adds.
    pub fn adds(&self) -> impl Iterator<Item = &str> {
        self.field("Adds")
            .iter()
            .map(String::as_str)
            .filter(|path| *path != "none")
    }

    /// The header's text, with the empty line that ends it.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (name, lines) in FIELDS.iter().zip(&self.0) {
            text.push_str(&format!("{name}:"));
            for line in lines {
                text.push_str(&format!(" {line}\n"));
            }
        }
        text.push('\n');
        text
    }

    /// The same header for other added files.
    #[must_use]
    pub fn with_adds(mut self, paths: impl IntoIterator<Item = String>) -> Self {
        let lines = &mut self.0[FIELDS.len() - 2];
        *lines = paths.into_iter().collect();
        if lines.is_empty() {
            lines.push("none".to_owned());
        }
        self
    }

    /// Parses a header with the empty line that ends it. `name` is the patch's, for errors.
    ///
    /// # Errors
    /// A field that is missing, empty or out of order; a path in `Adds` that leaves the tree.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let mut fields: [Vec<String>; FIELDS.len()] = Default::default();
        let mut current = None;
        let body = text.strip_suffix("\n\n").ok_or_else(|| {
            Error::patch(
                name,
                format!(
                    "expected a header ({}) and one empty line before the diff",
                    FIELDS.join(", ")
                ),
            )
        })?;
        for line in body.split('\n') {
            let (index, value) = if let Some(rest) = line.strip_prefix(' ') {
                (
                    current.ok_or_else(|| {
                        Error::patch(name, "the header begins with a continued line")
                    })?,
                    rest,
                )
            } else {
                let expected = current.map_or(0, |index: usize| index + 1);
                let field = FIELDS.get(expected);
                let rest = field.and_then(|field| line.strip_prefix(field)?.strip_prefix(": "));
                let Some(rest) = rest else {
                    let wanted = field.map_or("the end of the header".to_owned(), |field| {
                        format!("`{field}: …`")
                    });
                    return Err(Error::patch(
                        name,
                        format!("expected {wanted}, found {line:?}"),
                    ));
                };
                (expected, rest)
            };
            if value.trim().is_empty() || value.trim_end() != value {
                let message = format!(
                    "{} has an empty line or a space at a line's end",
                    FIELDS[index]
                );
                return Err(Error::patch(name, message));
            }
            fields[index].push(value.to_owned());
            current = Some(index);
        }
        if current != Some(FIELDS.len() - 1) {
            let missing: Vec<_> = FIELDS
                .iter()
                .zip(&fields)
                .filter(|(_, lines)| lines.is_empty())
                .map(|(f, _)| *f)
                .collect();
            return Err(Error::patch(
                name,
                format!("the header lacks {}", missing.join(", ")),
            ));
        }
        let header = Self(fields);
        for added in header.adds() {
            path::check(added, &format!("patches/{name}.patch, Adds"))?;
        }
        Ok(header)
    }
}

impl Patch {
    /// Parses a patch file.
    ///
    /// # Errors
    /// A header that lacks a field, CRLF line ends, an empty or cut-off diff, abbreviated ids, anything but edits of
    /// existing files, paths that leave the tree.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self> {
        let fail = |reason: &str| Err(Error::patch(name, reason));
        if bytes.is_empty() {
            return fail("it is empty");
        }
        let diff_start = find_line(bytes, b"diff --git ").unwrap_or(bytes.len());
        let (header, diff) = bytes.split_at(diff_start);
        if header.contains(&b'\r') {
            return fail("it has CRLF line ends; expected LF");
        }
        let header = std::str::from_utf8(header)
            .map_err(|_| Error::patch(name, "the header is not UTF-8"))?;
        let header = Header::parse(name, header)?;
        if diff.is_empty() && header.adds().next().is_none() {
            return fail("it changes nothing: no diff, and `Adds` names no file");
        }
        let scanned = Scan::of(name, diff)?;
        let edits = edits(name, diff)?;
        if !edits.iter().map(|edit| &edit.path).eq(&scanned.files) {
            return fail("libgit2 reads other paths in it than its lines say; it is malformed");
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

    /// Applies the diff to a tree, at exactly the lines it names.
    ///
    /// The ids decide, not libgit2's reading of the context: each file must have the content the patch was made from,
    /// and afterwards the content it promises.
    ///
    /// # Errors
    /// A file is missing or has another content; the reason tells an already applied patch from other cases.
    pub fn apply(&self, repo: &Repository, tree: Oid) -> Result<Oid> {
        let fail = |reason: String| Err(Error::patch(&self.name, reason));
        let base = repo.find_tree(tree)?;
        for edit in &self.edits {
            let Ok(entry) = base.get_path(edit.path.as_ref()) else {
                return fail(format!(
                    "expected {} in tree {tree}; there is none",
                    edit.path
                ));
            };
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
                    "it should make {} blob {}, but makes {found}",
                    edit.path, edit.after
                ));
            }
        }
        Ok(patched)
    }
}

/// The canonical bytes of a patch: its header and the diff of two trees, three lines of context, whole ids, no
/// renames. `ignore` names files that are added whole and so are no part of the diff.
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
        if delta.status() != Delta::Modified || delta.old_file().mode() != delta.new_file().mode() {
            stray = Some(path);
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
        Some(path) => Err(Error::patch(
            name,
            format!(
                "{path} is added, deleted or changes its mode; a diff only edits (added files belong in patches/files and `Adds`)"
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
            format!("the diff is malformed or cut off: {}", error.message()),
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
        if edits.iter().any(|edit: &Edit| edit.path == to) {
            return Err(Error::patch(name, format!("{to} is in it twice")));
        }
        edits.push(Edit {
            path: to,
            before: old.id(),
            after: new.id(),
        });
    }
    Ok(edits)
}

/// What a strict look at the diff's lines gives. libgit2 forgives too much: text after a hunk, ids cut short.
struct Scan {
    /// The paths, as the `diff --git` lines give them.
    files: Vec<String>,
    changed_lines: usize,
}

impl Scan {
    fn of(name: &str, diff: &[u8]) -> Result<Self> {
        let fail = |line: usize, reason: &str| {
            Err(Error::patch(
                name,
                format!("line {line} of the diff: {reason}"),
            ))
        };
        let mut scan = Self {
            files: Vec::new(),
            changed_lines: 0,
        };
        // Lines still due in the hunk, before and after.
        let (mut old, mut new) = (0, 0);
        if !diff.is_empty() && !diff.ends_with(b"\n") {
            return fail(
                diff.split(|byte| *byte == b'\n').count(),
                "it is cut off: the last line does not end",
            );
        }
        for (number, line) in diff.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let number = number + 1;
            if old > 0 || new > 0 {
                let (takes_old, takes_new) = match line[0] {
                    b' ' => (1, 1),
                    b'-' => (1, 0),
                    b'+' => (0, 1),
                    b'\\' => (0, 0),
                    _ => {
                        return fail(
                            number,
                            "a hunk is shorter than it says; it is cut off or edited",
                        );
                    }
                };
                if takes_old > old || takes_new > new {
                    return fail(number, "a hunk is longer than it says");
                }
                old -= takes_old;
                new -= takes_new;
                scan.changed_lines += usize::from(takes_old != takes_new);
                continue;
            }
            if line.ends_with(b"\r\n") {
                return fail(number, "it has CRLF line ends; expected LF");
            }
            if line.starts_with(b"diff --git ") {
                let Some(path) = path_of_pair(line) else {
                    return fail(
                        number,
                        "expected `diff --git a/<path> b/<path>` with the same path",
                    );
                };
                scan.files.push(path);
            } else if line.starts_with(b"--- ") || line.starts_with(b"+++ ") {
                let path = scan.files.last().map_or("", String::as_str);
                let expected = if line[0] == b'-' {
                    format!(
                        "--- a/{path}
"
                    )
                } else {
                    format!(
                        "+++ b/{path}
"
                    )
                };
                if line != expected.as_bytes() {
                    return fail(number, &format!("expected {:?}", expected.trim_end()));
                }
            } else if let Some(ids) = line.strip_prefix(b"index ") {
                if !has_whole_ids(ids) {
                    return fail(
                        number,
                        "expected two whole ids of 40 digits (`git diff --full-index`)",
                    );
                }
            } else if line.starts_with(b"@@ ") {
                let Some(lengths) = hunk_lengths(line) else {
                    return fail(number, "malformed hunk header");
                };
                (old, new) = lengths;
            } else if !line.starts_with(b"\\ ") {
                let text = String::from_utf8_lossy(line).trim_end().to_owned();
                return fail(
                    number,
                    &format!("expected an edit of an existing file, found {text:?}"),
                );
            }
        }
        if old > 0 || new > 0 {
            return fail(
                diff.split(|byte| *byte == b'\n').count(),
                "the last hunk is shorter than it says; it is cut off",
            );
        }
        Ok(scan)
    }
}

/// The path in `diff --git a/<path> b/<path>`.
fn path_of_pair(line: &[u8]) -> Option<String> {
    const BETWEEN: usize = " b/".len();
    let pair = std::str::from_utf8(line)
        .ok()?
        .strip_prefix("diff --git a/")?
        .strip_suffix('\n')?;
    let path = pair.get(..pair.len().checked_sub(BETWEEN)? / 2)?;
    (pair == format!("{path} b/{path}")).then(|| path.to_owned())
}

fn has_whole_ids(ids: &[u8]) -> bool {
    let is_id = |text: &[u8]| text.len() == 40 && text.iter().all(u8::is_ascii_hexdigit);
    ids.len() > 82
        && is_id(&ids[..40])
        && &ids[40..42] == b".."
        && is_id(&ids[42..82])
        && ids[82] == b' '
}

/// The lengths in `@@ -start[,length] +start[,length] @@`.
fn hunk_lengths(line: &[u8]) -> Option<(usize, usize)> {
    let text = std::str::from_utf8(line.strip_prefix(b"@@ ")?).ok();
    // The function after the second @@ may be cut in the middle of a character.
    let text = text.map_or_else(|| String::from_utf8_lossy(&line[3..]), Into::into);
    let mut ranges = text.split(' ');
    let length = |range: &str, sign: char| -> Option<usize> {
        let range = range.strip_prefix(sign)?;
        let (start, length) = range.split_once(',').unwrap_or((range, "1"));
        start.parse::<usize>().ok()?;
        length.parse().ok()
    };
    let old = length(ranges.next()?, '-')?;
    let new = length(ranges.next()?, '+')?;
    ranges.next()?.starts_with("@@").then_some((old, new))
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
