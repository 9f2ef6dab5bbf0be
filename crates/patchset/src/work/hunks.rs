//! The hunks between two trees, as data.

use std::collections::BTreeMap;

use git2::{DiffOptions, Oid, Patch, Repository};

use crate::error::Result;

/// Hunks by file.
pub(crate) type Hunks = BTreeMap<String, Vec<Hunk>>;

/// One hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// The first line before.
    pub old_start: u32,
    /// The number of lines before.
    pub old_lines: u32,
    /// The first line after.
    pub new_start: u32,
    /// The number of lines after.
    pub new_lines: u32,
    /// The lines, each starting with ` `, `+` or `-`.
    pub lines: Vec<String>,
}

impl Hunk {
    /// The last line before.
    pub fn old_end(&self) -> u32 {
        self.old_start + self.old_lines.saturating_sub(1)
    }

    /// Whether a change of the same file is inside the lines of this hunk.
    pub(super) fn touches(&self, hunk: &Self) -> bool {
        // A pure addition comes after its line, so it touches only hunks that continue below it.
        let end = if self.old_lines == 0 {
            self.old_start + 1
        } else {
            self.old_end()
        };
        self.old_start <= hunk.old_end() && end >= hunk.old_start
    }
}

/// All text files that differ between two trees, with `context` lines around each hunk.
pub(crate) fn between(repo: &Repository, old: Oid, new: Oid, context: u32) -> Result<Hunks> {
    let mut options = DiffOptions::new();
    options
        .context_lines(context)
        .interhunk_lines(0)
        .indent_heuristic(false);
    let (old, new) = (repo.find_tree(old)?, repo.find_tree(new)?);
    let diff = repo.diff_tree_to_tree(Some(&old), Some(&new), Some(&mut options))?;
    let mut files = Hunks::new();
    for index in 0..diff.deltas().len() {
        // Binary files have no lines.
        let Some(patch) = Patch::from_diff(&diff, index)? else {
            continue;
        };
        let Some(path) = patch
            .delta()
            .new_file()
            .path()
            .map(|path| path.display().to_string())
        else {
            continue;
        };
        let hunks = (0..patch.num_hunks())
            .map(|hunk| read(&patch, hunk))
            .collect::<Result<_>>()?;
        files.insert(path, hunks);
    }
    Ok(files)
}

/// The numbers of added and removed lines in a file.
pub(super) fn counts(changes: &Hunks, path: &str) -> (usize, usize) {
    let lines = changes
        .get(path)
        .into_iter()
        .flatten()
        .flat_map(|hunk| &hunk.lines);
    lines.fold((0, 0), |(added, removed), line| {
        (
            added + usize::from(line.starts_with('+')),
            removed + usize::from(line.starts_with('-')),
        )
    })
}

fn read(patch: &Patch<'_>, index: usize) -> Result<Hunk> {
    let (header, count) = patch.hunk(index)?;
    let (old_start, old_lines) = (header.old_start(), header.old_lines());
    let (new_start, new_lines) = (header.new_start(), header.new_lines());
    let mut lines = Vec::with_capacity(count);
    for line in 0..count {
        let line = patch.line_in_hunk(index, line)?;
        if matches!(line.origin(), ' ' | '+' | '-') {
            let text = String::from_utf8_lossy(line.content());
            lines.push(format!(
                "{}{}",
                line.origin(),
                text.trim_end_matches(['\n', '\r'])
            ));
        }
    }
    Ok(Hunk {
        old_start,
        old_lines,
        new_start,
        new_lines,
        lines,
    })
}
