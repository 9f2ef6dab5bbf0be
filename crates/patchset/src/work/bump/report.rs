//! What a bump tells: to the terminal, and as Markdown to the commit that moves the pin.

use std::fmt::{self, Write as _};

use git2::Oid;

use super::fate::{Fate, Moved};
use crate::model::manifest::Pin;
use crate::watch::{Change, Watched};
use crate::work::hunks::Hunk;
use crate::work::merge::Conflict;

/// Everything that a bump found out.
#[derive(Debug, Clone)]
pub struct Report {
    /// The pin before.
    pub from: PinName,
    /// The pin after.
    pub to: PinName,
    /// Who brought the new pin.
    pub source: String,
    /// Each patch of the series and what became of it.
    pub patches: Vec<PatchReport>,
    /// The files that patches edit, and what upstream did to them.
    pub files: Vec<FileReport>,
    /// Upstream's commits that touch these files; `None` where the source has no history.
    pub commits: Option<Vec<String>>,
    /// The watch list.
    pub watched: Vec<Watched>,
    /// The tree with all patches, where they all fit.
    pub final_tree: Option<Oid>,
}

/// A pin as people call it.
#[derive(Debug, Clone)]
pub struct PinName {
    /// The version.
    pub version: String,
    /// The tag, or the commit where there is no tag.
    pub name: String,
    /// The tree.
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

/// What became of a patch.
#[derive(Debug, Clone)]
pub struct PatchReport {
    /// Its name.
    pub name: String,
    /// Its subject.
    pub subject: String,
    /// What became of it.
    pub fate: Fate,
    /// When it may go, as its header says.
    pub drop_when: String,
}

/// What upstream did to a file that a patch edits.
#[derive(Debug, Clone)]
pub struct FileReport {
    /// The file.
    pub path: String,
    /// The patches that edit it.
    pub patches: Vec<String>,
    /// What upstream did.
    pub change: FileChange,
}

/// What upstream did to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileChange {
    /// Nothing.
    Same,
    /// It edited it.
    Edited {
        /// Lines added.
        added: usize,
        /// Lines removed.
        removed: usize,
    },
    /// The new pin has no such file.
    Gone,
}

impl Report {
    /// The patches that are absorbed.
    pub fn absorbed(&self) -> impl Iterator<Item = &PatchReport> {
        self.patches
            .iter()
            .filter(|patch| patch.fate == Fate::Absorbed)
    }

    /// The patch that does not fit.
    pub fn conflict(&self) -> Option<&PatchReport> {
        self.patches
            .iter()
            .find(|patch| matches!(patch.fate, Fate::Conflict(_)))
    }

    /// The watched names that are not what they were.
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

    /// The report as Markdown. It names no time and no machine, so the same bump gives the same text.
    pub fn to_markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let Self { from, to, .. } = self;
        writeln!(out, "# MLX {} to {}\n", from.name, to.name)?;
        writeln!(out, "| | before | after |\n|---|---|---|")?;
        writeln!(out, "| version | {} | {} |", from.version, to.version)?;
        writeln!(out, "| pin | {} | {} |", from.name, to.name)?;
        writeln!(out, "| tree | `{}` | `{}` |", from.tree, to.tree)?;
        writeln!(out, "\nSource of the new tree: {}.", self.source)?;
        if let Some(tree) = self.final_tree {
            writeln!(out, "Tree with all patches: `{tree}`.")?;
        }
        self.write_patches(out)?;
        self.write_files(out)?;
        self.write_watched(out)
    }

    fn write_patches(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "\n## Patches\n\n| patch | result |\n|---|---|")?;
        for patch in &self.patches {
            writeln!(out, "| {} | {} |", patch.name, in_a_word(&patch.fate))?;
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
                        "{}: upstream has all of it, nothing is left of the patch.",
                        patch.subject
                    )?;
                    writeln!(
                        out,
                        "It was to be dropped when: {}.",
                        patch.drop_when.trim_end_matches('.')
                    )?;
                }
                Fate::Conflict(conflicts) => {
                    writeln!(out, "\n### {}: conflict", patch.name)?;
                    conflicts
                        .iter()
                        .try_for_each(|conflict| write_conflict(out, conflict))?;
                }
                Fate::Clean | Fate::Resolved | Fate::NotTried => {}
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
                FileChange::Gone => "gone".to_owned(),
            };
            writeln!(
                out,
                "| `{}` | {} | {change} |",
                file.path,
                file.patches.join(", ")
            )?;
        }
        match &self.commits {
            None => writeln!(
                out,
                "\nCommits: not known; the source has no history from the one pin to the other."
            ),
            Some(commits) if commits.is_empty() => {
                writeln!(out, "\nCommits that touch them: none.")
            }
            Some(commits) => {
                writeln!(out, "\nCommits that touch them, newest first:\n")?;
                commits
                    .iter()
                    .try_for_each(|commit| writeln!(out, "- {commit}"))
            }
        }
    }

    fn write_watched(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "\n## Watch list\n")?;
        if self.watched.is_empty() {
            return writeln!(out, "`mlx.toml` watches nothing.");
        }
        let changed: Vec<_> = self.changed().collect();
        if changed.is_empty() {
            writeln!(
                out,
                "None of the {} watched names changed (comments and white space aside).",
                self.watched.len()
            )?;
        } else {
            writeln!(
                out,
                "{} of {} watched names changed (comments and white space aside). A claim that rests on one of them must be checked again.\n",
                changed.len(),
                self.watched.len()
            )?;
            writeln!(out, "| name | file | change |\n|---|---|---|")?;
            for watched in &changed {
                let what = match watched.change {
                    Change::Appeared => "new",
                    Change::Gone => "gone",
                    _ => "changed",
                };
                writeln!(
                    out,
                    "| {} `{}` | `{}` | {what} |",
                    watched.kind, watched.name, watched.file
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
            let mut text = format!("moved ({}", count(hunks, "hunk"));
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
        Fate::Resolved => "resolved by hand".to_owned(),
        Fate::Conflict(files) => format!("**conflict** in {}", count(files.len(), "file")),
        Fate::NotTried => "not tried: a patch before it does not fit".to_owned(),
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn write_moved(out: &mut String, file: &Moved) -> fmt::Result {
    writeln!(out, "\n`{}`:\n", file.path)?;
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

/// The first lines; the worktree has them all.
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
