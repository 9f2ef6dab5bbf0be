//! Checks the lines of a diff strictly, before libgit2 reads it.

use crate::error::{Error, Result};

/// The result of a strict check of the diff's lines. libgit2 tolerates too much: text after a hunk, abbreviated ids.
pub(super) struct Scan {
    /// The paths in the `diff --git` lines.
    pub(super) files: Vec<String>,
    /// Lines added plus lines removed.
    pub(super) changed_lines: usize,
}

impl Scan {
    pub(super) fn of(name: &str, diff: &[u8]) -> Result<Self> {
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
        // Lines still expected in the hunk, before and after.
        let (mut old, mut new) = (0, 0);
        if !diff.is_empty() && !diff.ends_with(b"\n") {
            return fail(
                diff.split(|byte| *byte == b'\n').count(),
                "it was truncated: the last line has no line end",
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
                            "a hunk is shorter than its header says; it was truncated or edited",
                        );
                    }
                };
                if takes_old > old || takes_new > new {
                    return fail(number, "a hunk is longer than its header says");
                }
                old -= takes_old;
                new -= takes_new;
                scan.changed_lines += usize::from(takes_old != takes_new);
                continue;
            }
            if line.ends_with(b"\r\n") {
                return Err(Error::LineEnds(format!("patches/{name}.patch")));
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
                    format!("--- a/{path}\n")
                } else {
                    format!("+++ b/{path}\n")
                };
                if line != expected.as_bytes() {
                    return fail(number, &format!("expected {:?}", expected.trim_end()));
                }
            } else if let Some(ids) = line.strip_prefix(b"index ") {
                let Some(mode) = after_whole_ids(ids) else {
                    return fail(
                        number,
                        "expected two complete ids of 40 digits (`git diff --full-index`)",
                    );
                };
                // libgit2 accepts any number, and git2 panics on a mode that it does not know. A link must not be
                // edited: another target may lead out of the tree.
                if !matches!(mode, b"100644\n" | b"100755\n") {
                    return fail(number, "expected a mode: 100644 or 100755");
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
                "the last hunk is shorter than its header says; it was truncated",
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

/// The text after `<id>..<id> `.
fn after_whole_ids(ids: &[u8]) -> Option<&[u8]> {
    let is_id = |text: &[u8]| text.len() == 40 && text.iter().all(u8::is_ascii_hexdigit);
    let whole = ids.len() > 82
        && is_id(&ids[..40])
        && &ids[40..42] == b".."
        && is_id(&ids[42..82])
        && ids[82] == b' ';
    whole.then(|| &ids[83..])
}

/// The lengths in `@@ -start[,length] +start[,length] @@`.
fn hunk_lengths(line: &[u8]) -> Option<(usize, usize)> {
    let text = std::str::from_utf8(line.strip_prefix(b"@@ ")?).ok();
    // The function name after the second @@ may be cut in the middle of a character.
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
