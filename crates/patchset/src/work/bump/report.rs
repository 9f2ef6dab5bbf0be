//! The report of a bump: for the terminal, and as Markdown for the commit that moves the pin.

use std::fmt::{self, Write as _};

use git2::Oid;

use super::fate::{Fate, Moved, When};
use crate::model::manifest::Pin;
use crate::watch::{Change, Watched};
use crate::work::hunks::Hunk;
use crate::work::merge::Conflict;

/// All findings of a bump.
#[derive(Debug, Clone)]
pub struct Report {
    /// The pin before.
    pub from: PinName,
    /// The pin after.
    pub to: PinName,
    /// A description of the new pin's source, without the paths of this machine.
    pub source: String,
    /// Whether only a local repository is known to have the new pin's commit.
    pub unknown_to_others: bool,
    /// Each patch of the series with its result.
    pub patches: Vec<PatchReport>,
    /// The files that patches edit, and what upstream did to them.
    pub files: Vec<FileReport>,
    /// Upstream's commits that touch these files or watched ones; `None` if the source has no history.
    pub commits: Option<Vec<String>>,
    /// The watch list.
    pub watched: Vec<Watched>,
    /// The tree with all patches, if they all fit.
    pub final_tree: Option<Oid>,
}

#[derive(Debug, Clone)]
pub struct PinName {
    pub version: String,
    /// The tag, or the commit if there is no tag.
    pub name: String,
    pub tree: Oid,
}

impl PinName {
    pub(super) fn new(pin: &Pin, tree: Oid) -> Self {
        Self {
            version: pin.version.clone(),
            name: short(&pin.name()).to_owned(),
            tree,
        }
    }
}

/// The result for a patch.
#[derive(Debug, Clone)]
pub struct PatchReport {
    pub name: String,
    pub subject: String,
    /// The effect of the bump.
    pub fate: Fate,
    /// Whether it fits only if an earlier conflict is resolved in the patch's favour.
    pub depends: bool,
    /// When it can be dropped, according to its header.
    pub drop_when: String,
}

/// Upstream's changes to a file that a patch edits.
#[derive(Debug, Clone)]
pub struct FileReport {
    /// The file at the old pin.
    pub path: String,
    /// The path at the new pin, if upstream renamed it.
    pub renamed_to: Option<String>,
    /// The patches that edit it.
    pub patches: Vec<String>,
    /// The kind of change.
    pub change: FileChange,
}

/// The kind of an upstream change to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileChange {
    /// Nothing.
    Same,
    Edited {
        /// Lines added.
        added: usize,
        /// Lines removed.
        removed: usize,
    },
    /// It changed the executable bit.
    Mode,
    /// The new pin has no such file.
    Gone,
}

impl Report {
    /// The patches without changes.
    pub fn empty(&self) -> impl Iterator<Item = &PatchReport> {
        self.patches.iter().filter(|patch| patch.fate.is_empty())
    }

    /// The patches that do not fit.
    pub fn conflicts(&self) -> impl Iterator<Item = &PatchReport> {
        self.patches
            .iter()
            .filter(|patch| matches!(patch.fate, Fate::Conflict(_)))
    }

    /// The watched names that changed.
    pub fn changed(&self) -> impl Iterator<Item = &Watched> {
        self.watched
            .iter()
            .filter(|watched| !matches!(watched.change, Change::Same | Change::Absent))
    }

    /// The file name of the report, from pin to pin.
    pub fn file_name(&self) -> String {
        let part = |pin: &PinName| pin.name.trim_start_matches('v').replace('/', "-");
        format!("{}-to-{}.md", part(&self.from), part(&self.to))
    }

    /// The path of the full report in the project.
    pub fn file(&self) -> String {
        format!("{REPORTS}/{}", self.file_name())
    }

    /// A summary for people, two screens at most.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_summary(&mut text);
        text
    }

    /// The full report as Markdown. It contains no time and no machine, so the same bump gives the same text.
    pub fn to_markdown(&self) -> String {
        let mut text = self.summary();
        let _ = self.write_details(&mut text);
        text
    }

    fn write_summary(&self, out: &mut String) -> fmt::Result {
        let Self { from, to, .. } = self;
        writeln!(out, "# MLX {} to {}\n", from.name, to.name)?;
        writeln!(out, "| | before | after |\n|---|---|---|")?;
        writeln!(out, "| version | {} | {} |", from.version, to.version)?;
        writeln!(out, "| tree | `{}` | `{}` |", from.tree, to.tree)?;
        writeln!(out, "\nSource of the new tree: {}.", self.source)?;
        if self.unknown_to_others {
            writeln!(
                out,
                "**No other repository is known to have this commit**: push it to a repository that `mlx.toml` names."
            )?;
        }
        if let Some(tree) = self.final_tree {
            writeln!(out, "Tree with all patches: `{tree}`.")?;
        }
        writeln!(out, "\n| patch | result |\n|---|---|")?;
        let is_clean = |patch: &&PatchReport| patch.fate == Fate::Clean && !patch.depends;
        let (clean, others): (Vec<_>, Vec<_>) = self.patches.iter().partition(is_clean);
        let shown = if self.patches.len() > MOST_PATCHES {
            others
        } else {
            self.patches.iter().collect()
        };
        let rows = shown
            .iter()
            .map(|patch| format!("| {} | {} |", patch.name, patch.result()));
        some_lines(out, rows, MOST_PATCHES, |more| {
            format!("| {more} more | see below |")
        })?;
        if self.patches.len() > MOST_PATCHES && !clean.is_empty() {
            writeln!(out, "| {} others | clean |", clean.len())?;
        }
        if self.conflicts().next().is_some() {
            writeln!(
                out,
                "\nThe patches after the first conflict were tried with it resolved in the patch's favour and in upstream's.\n"
            )?;
        }
        let files = self.conflicts().flat_map(|patch| match &patch.fate {
            Fate::Conflict(files) => files.iter().map(|file| (&patch.name, file)).collect(),
            _ => Vec::new(),
        });
        let rows = files.map(|(name, file)| {
            let decided = if file.decided {
                " (decided before)"
            } else {
                ""
            };
            format!("- {name}: `{}`: {}{decided}", file.path, file.reason)
        });
        some_lines(out, rows, MOST_CONFLICTS, |more| format!("- {more} more"))?;
        self.sum_up_files(out)?;
        self.sum_up_watched(out)
    }

    fn sum_up_files(&self, out: &mut String) -> fmt::Result {
        let changed = self.files.iter();
        let changed = changed
            .filter(|file| file.change != FileChange::Same)
            .count();
        writeln!(
            out,
            "\nUpstream changed {changed} of {}.",
            count(self.files.len(), "patched file")
        )?;
        let renamed = self.files.iter();
        let renamed = renamed
            .filter_map(|file| Some((&file.path, file.renamed_to.as_ref()?)))
            .map(|(old, new)| format!("Renamed `{old}` to `{new}`."));
        some_lines(out, renamed, MOST_RENAMES, |more| {
            format!("{more} more renamed.")
        })?;
        match &self.commits {
            None => writeln!(
                out,
                "Commits: not known; the source has no history between the two pins."
            ),
            Some(commits) => writeln!(
                out,
                "{} of upstream's touch patched or watched files.",
                count(commits.len(), "commit")
            ),
        }
    }

    fn sum_up_watched(&self, out: &mut String) -> fmt::Result {
        let changed: Vec<_> = self.changed().collect();
        if self.watched.is_empty() {
            return writeln!(out, "\n`mlx.toml` watches nothing.");
        }
        if changed.is_empty() {
            return writeln!(
                out,
                "\nNone of the {} watched names changed (comments and white space aside).",
                self.watched.len()
            );
        }
        writeln!(
            out,
            "\n{} of {} watched names changed (comments and white space aside). Claims that depend on them must be checked again:\n",
            changed.len(),
            self.watched.len()
        )?;
        let of_files = changed.chunk_by(|one, other| one.file == other.file);
        let rows = of_files.map(|names| {
            let shown: Vec<_> = names
                .iter()
                .take(MOST_NAMES)
                .map(|it| it.name.as_str())
                .collect();
            let more = match names.len().saturating_sub(MOST_NAMES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("- `{}`: {}{more}", names[0].file, shown.join(", "))
        });
        some_lines(out, rows, MOST_WATCHED, |more| {
            format!("- {} more", count(more, "file"))
        })
    }

    fn write_details(&self, out: &mut String) -> fmt::Result {
        self.write_patches(out)?;
        self.write_files(out)?;
        self.write_watched(out)
    }

    fn write_patches(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "\n## Patches")?;
        if self.patches.len() > MOST_PATCHES {
            writeln!(out, "\n| patch | result |\n|---|---|")?;
            for patch in &self.patches {
                writeln!(out, "| {} | {} |", patch.name, patch.result())?;
            }
        }
        for patch in &self.patches {
            match &patch.fate {
                Fate::Moved(files) => {
                    writeln!(out, "\n### {}: moved", patch.name)?;
                    files.iter().try_for_each(|file| write_moved(out, file))?;
                }
                Fate::Absorbed => {
                    writeln!(out, "\n### {}: absorbed\n", patch.name)?;
                    writeln!(
                        out,
                        "{}: upstream has all of it; no change of the patch is left.",
                        patch.subject
                    )?;
                    writeln!(
                        out,
                        "Its header says to drop it when: {}.",
                        patch.drop_when.trim_end_matches('.')
                    )?;
                }
                Fate::Conflict(conflicts) => {
                    writeln!(out, "\n### {}: conflict", patch.name)?;
                    conflicts
                        .iter()
                        .try_for_each(|conflict| write_conflict(out, conflict))?;
                }
                Fate::Clean | Fate::Resolved(_) | Fate::Emptied => {}
            }
        }
        Ok(())
    }

    fn write_files(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "\n## Upstream's changes to the patched files\n\n| file | patches | change |\n|---|---|---|"
        )?;
        for file in &self.files {
            let change = match file.change {
                FileChange::Same => "none".to_owned(),
                FileChange::Edited { added, removed } => format!("+{added} -{removed}"),
                FileChange::Mode => "mode".to_owned(),
                FileChange::Gone => "gone".to_owned(),
            };
            let change = match &file.renamed_to {
                Some(new) => format!("renamed to `{new}`, {change}"),
                None => change,
            };
            writeln!(
                out,
                "| `{}` | {} | {change} |",
                file.path,
                file.patches.join(", ")
            )?;
        }
        let Some(commits) = &self.commits else {
            return Ok(());
        };
        writeln!(
            out,
            "\n## Commits that touch patched or watched files, newest first\n"
        )?;
        if commits.is_empty() {
            return writeln!(out, "None.");
        }
        commits
            .iter()
            .try_for_each(|commit| writeln!(out, "- {commit}"))
    }

    fn write_watched(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "\n## Watch list")?;
        let changed: Vec<_> = self.changed().collect();
        if !changed.is_empty() {
            writeln!(out)?;
            writeln!(out, "| name | file | change |\n|---|---|---|")?;
            for watched in &changed {
                let what = match watched.change {
                    Change::Appeared => "new",
                    Change::Gone => "gone",
                    _ => "changed",
                };
                let now_in = watched.now_in.as_ref();
                let now_in = now_in.map(|file| format!("; `{file}` defines it"));
                writeln!(
                    out,
                    "| {} `{}` | `{}` | {what}{} |",
                    watched.kind,
                    watched.name,
                    watched.file,
                    now_in.unwrap_or_default()
                )?;
            }
        }
        for (what, change) in [
            ("Unchanged", Change::Same),
            ("In neither tree", Change::Absent),
        ] {
            let these = self.watched.iter().filter(|it| it.change == change);
            let these: Vec<_> = these.collect();
            if !these.is_empty() {
                writeln!(out, "\n{what}:\n")?;
            }
            // Two headers may define the same name.
            for of_file in these.chunk_by(|one, other| one.file == other.file) {
                let names: Vec<_> = of_file.iter().map(|it| format!("`{}`", it.name)).collect();
                writeln!(out, "- `{}`: {}", of_file[0].file, names.join(", "))?;
            }
        }
        for watched in &changed {
            if let Change::Changed(diff) = &watched.change {
                writeln!(
                    out,
                    "\n<details><summary>{} <code>{}</code></summary>\n",
                    watched.kind, watched.name
                )?;
                writeln!(out, "{}\n</details>", fenced("diff", diff))?;
            }
        }
        Ok(())
    }
}

impl PatchReport {
    fn result(&self) -> String {
        let depends = match self.depends {
            true => ", if the conflict before is resolved in the patch's favour",
            false => "",
        };
        in_a_word(&self.fate) + depends
    }
}

fn short(name: &str) -> &str {
    if name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        &name[..7]
    } else {
        name
    }
}

fn in_a_word(fate: &Fate) -> String {
    match fate {
        Fate::Clean => "clean".to_owned(),
        Fate::Moved(files) => {
            let hunks = files.iter().map(|file| file.hunks.len()).sum::<usize>();
            let context = files
                .iter()
                .flat_map(|file| &file.hunks)
                .filter(|hunk| !hunk.context.is_empty())
                .count();
            let absorbed = files.iter().map(|file| file.absorbed).sum::<usize>();
            let mut parts: Vec<_> = files
                .iter()
                .filter_map(|file| {
                    let old = file.renamed_from.as_ref()?;
                    Some(format!("renamed {old} to {}", file.path))
                })
                .collect();
            if parts.is_empty() || hunks > 0 {
                parts.push(count(hunks, "hunk"));
            }
            let mut text = format!("moved ({}", parts.join(", "));
            if context > 0 {
                let _ = write!(text, ", {context} with other lines around");
            }
            if absorbed > 0 {
                let _ = write!(
                    text,
                    ", {} taken up by upstream, wholly or in part",
                    count(absorbed, "hunk")
                );
            }
            text + ")"
        }
        Fate::Absorbed => "**absorbed**: drop it".to_owned(),
        Fate::Resolved(When::Now) => "resolved by hand".to_owned(),
        Fate::Resolved(When::Before) => "resolved as before: read it".to_owned(),
        Fate::Emptied => "**no change left** after it was resolved by hand: drop it".to_owned(),
        Fate::Conflict(files) => format!("**conflict** in {}", count(files.len(), "file")),
    }
}

/// The folder of the full reports in the project. They quote upstream, and are not committed.
const REPORTS: &str = "target/pin-moves";

/// The most lines of each kind in a summary: with the lines between them, two screens of 40 lines.
const MOST_PATCHES: usize = 20;
const MOST_CONFLICTS: usize = 12;
const MOST_RENAMES: usize = 4;
const MOST_WATCHED: usize = 14;
/// The most names from one file.
const MOST_NAMES: usize = 8;

/// The first lines, and how many more there are.
fn some_lines(
    out: &mut String,
    lines: impl Iterator<Item = String>,
    most: usize,
    more: impl Fn(usize) -> String,
) -> fmt::Result {
    let lines: Vec<_> = lines.collect();
    let shown = if lines.len() > most { most - 1 } else { most };
    for line in lines.iter().take(shown) {
        writeln!(out, "{line}")?;
    }
    match lines.len().saturating_sub(shown) {
        0 => Ok(()),
        left => writeln!(out, "{}", more(left)),
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn write_moved(out: &mut String, file: &Moved) -> fmt::Result {
    match &file.renamed_from {
        Some(old) => writeln!(out, "\n`{old}`, renamed to `{}`:\n", file.path)?,
        None => writeln!(out, "\n`{}`:\n", file.path)?,
    }
    for hunk in &file.hunks {
        let by = i64::from(hunk.to) - i64::from(hunk.from);
        writeln!(out, "- line {} to line {} ({by:+})", hunk.from, hunk.to)?;
        if !hunk.context.is_empty() {
            let lines: String = hunk
                .context
                .iter()
                .map(|line| format!("{line}\n"))
                .collect();
            writeln!(
                out,
                "  Upstream changed lines around it:\n\n{}",
                indented(&fenced("diff", &lines))
            )?;
        }
    }
    if file.upstream.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nUpstream's lines that moved it:\n")?;
    let lines: String = file.upstream.iter().map(one_line).collect();
    writeln!(out, "{}", fenced("text", &lines))
}

/// Range, balance, and the first line of a change.
fn one_line(hunk: &Hunk) -> String {
    let balance = i64::from(hunk.new_lines) - i64::from(hunk.old_lines);
    let first = hunk
        .lines
        .iter()
        .find(|line| line.len() > 1)
        .map_or("", String::as_str);
    let range = format!(
        "@@ -{},{} +{},{} @@",
        hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines
    );
    format!("{range:<28} {balance:+4}  {first}\n")
}

fn write_conflict(out: &mut String, conflict: &Conflict) -> fmt::Result {
    writeln!(out, "\n`{}`: {}.", conflict.path, conflict.reason)?;
    for place in &conflict.places {
        writeln!(
            out,
            "\nThe patch there:\n\n{}",
            fenced("diff", &place.patch)
        )?;
        if place.upstream.is_empty() {
            writeln!(out, "\nThe new pin has no such lines.")?;
        } else {
            writeln!(
                out,
                "\nThe new pin there:\n\n{}",
                fenced("text", &shortened(&place.upstream))
            )?;
        }
    }
    Ok(())
}

/// The first lines; the worktree has all of them.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 12;
    let mut lines: Vec<_> = text.lines().collect();
    let more = lines.len().saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    let mut text = lines.join("\n") + "\n";
    if more > 0 {
        let _ = writeln!(text, "… and {more} more lines");
    }
    text
}

/// A code block whose fence is longer than any inside it.
fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(3.max(longest + 1));
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{end}{fence}")
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}
