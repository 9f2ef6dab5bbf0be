//! The effect of a bump on a patch, in a form that people can check.

use git2::{Oid, Repository};

use crate::error::Result;
use crate::work::hunks::{Hunk, between};
use crate::work::merge::Conflict;
use crate::work::renames::Renames;

/// The result for a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Its hunks are equal, at the same lines.
    Clean,
    /// It fits, but at other lines or with other lines around it.
    Moved(Vec<Moved>),
    /// Upstream has all of it: no change of the patch is left.
    Absorbed,
    /// A person resolved it.
    Resolved(When),
    /// A person resolved it, and no change of the patch is left: the files are upstream's.
    Emptied,
    /// It does not fit.
    Conflict(Vec<Conflict>),
}

impl Fate {
    /// Whether a person resolved it.
    pub fn is_decided(&self) -> bool {
        matches!(self, Self::Resolved(_) | Self::Emptied)
    }

    /// Whether no change of the patch is left.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Absorbed | Self::Emptied)
    }
}

/// When a person resolved a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// In this bump.
    Now,
    /// In an earlier one; the same lines conflicted again.
    Before,
}

/// Why a patch moved in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// The file at the new pin.
    pub path: String,
    /// The path at the old pin, if upstream renamed it.
    pub renamed_from: Option<String>,
    /// Hunks at other lines or with other lines around them.
    pub hunks: Vec<MovedHunk>,
    /// Hunks that the patch no longer has, or only in part, because upstream has their lines.
    pub absorbed: usize,
    /// Upstream's own changes to the file, down to the last of these hunks.
    pub upstream: Vec<Hunk>,
}

/// One moved hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedHunk {
    /// The first line in the old file.
    pub from: u32,
    /// The first line in the new file.
    pub to: u32,
    /// Lines around the hunk that upstream changed: `-` and `+`.
    pub context: Vec<String>,
}

/// Compares the patch before (`old.0` to `old.1`, with the new pin's paths) and after (`new.0` to `new.1`).
pub(super) fn fate(
    repo: &Repository,
    old: (Oid, Oid),
    new: (Oid, Oid),
    renames: &Renames,
) -> Result<Fate> {
    if new.0 == new.1 {
        return Ok(Fate::Absorbed);
    }
    let (was, is) = (
        between(repo, old.0, old.1, 3)?,
        between(repo, new.0, new.1, 3)?,
    );
    let is_renamed = |path: &String| renames.old_path(path).is_some();
    if was == is && !was.keys().any(is_renamed) {
        return Ok(Fate::Clean);
    }
    let upstream = between(repo, old.0, new.0, 0)?;
    let none = Vec::new();
    let moved = was
        .iter()
        .filter(|(path, hunks)| is.get(*path) != Some(hunks) || is_renamed(path))
        .map(|(path, hunks)| {
            let after = is.get(path).unwrap_or(&none);
            let upstream = upstream.get(path).unwrap_or(&none);
            Moved {
                renamed_from: renames.old_path(path).map(str::to_owned),
                ..moved(path, hunks, after, upstream)
            }
        })
        .collect();
    Ok(Fate::Moved(moved))
}

fn moved(path: &str, was: &[Hunk], is: &[Hunk], upstream: &[Hunk]) -> Moved {
    let mut hunks = Vec::new();
    let mut absorbed = 0;
    let mut left = is;
    for hunk in was {
        // Equal changes, regardless of the lines around them.
        let Some(at) = left.iter().position(|now| same_change(hunk, now)) else {
            absorbed += 1;
            continue;
        };
        let now = &left[at];
        left = &left[at + 1..];
        if now != hunk {
            let context = upstream
                .iter()
                .filter(|change| change.touches(hunk))
                .flat_map(|change| change.lines.clone());
            hunks.push(MovedHunk {
                from: hunk.old_start,
                to: now.old_start,
                context: context.collect(),
            });
        }
    }
    let last = was.last().map_or(0, Hunk::old_end);
    let upstream = upstream
        .iter()
        .filter(|change| change.old_start <= last)
        .cloned()
        .collect();
    Moved {
        path: path.to_owned(),
        renamed_from: None,
        hunks,
        absorbed,
        upstream,
    }
}

fn same_change(one: &Hunk, other: &Hunk) -> bool {
    let changes = |hunk: &Hunk| {
        hunk.lines
            .iter()
            .filter(|line| !line.starts_with(' '))
            .cloned()
            .collect::<Vec<_>>()
    };
    changes(one) == changes(other)
}
