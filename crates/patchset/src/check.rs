//! Checks whether the project is in order, with one function per check. Commands that need a part of it call the same
//! functions.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use git2::{Oid, Repository};

use crate::error::{Error, Result};
use crate::model::lock::Lock;
use crate::place::Scratch;
use crate::place::workspace::Workspace;
use crate::process;
use crate::progress::{Progress, QUIET};
use crate::project::{Parts, Project, hold};
use crate::sources::store::Store;
use crate::state::applied;
use crate::watch::{Sums, sums};
use crate::work::hunks::between;

/// A check of the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// `patches/series`, the patches, their headers, and the files that they add are consistent.
    Series,
    /// `mlx.lock` matches the pin and the patches, and has the ids of the trees that they produce.
    Lock,
    /// The patches change no more upstream lines than `mlx.toml` allows.
    Budget,
    /// The patches apply and are in canonical form, and their lines are formatted like MLX's.
    Lint,
    /// The upstream definitions that `mlx.toml` watches have not changed since the patches were checked against them.
    Watch,
    /// `vendor/mlx` is the lock's final tree.
    Tree,
}

/// The result of a check.
#[derive(Debug, Default)]
pub struct Findings {
    /// A short description of what is right; empty if there are faults.
    pub found: String,
    /// The errors that were found.
    pub faults: Vec<Error>,
    /// Checks that could not be made, or not exactly as MLX makes them.
    pub notes: Vec<String>,
}

/// Runs one check. Waits for another run that changes the project. `clang_format` is the program for [`Check::Lint`];
/// without one, the format is not checked and a note reports that.
pub fn check(
    workspace: &Workspace,
    which: Check,
    clang_format: Option<&Utf8Path>,
    progress: Progress<'_>,
) -> Findings {
    let mut findings = Findings::default();
    match make(workspace, which, clang_format, &mut findings, progress) {
        Ok(found) if findings.faults.is_empty() => findings.found = found,
        Ok(_) => {}
        Err(error) => findings.faults.push(error),
    }
    findings
}

fn make(
    workspace: &Workspace,
    which: Check,
    clang_format: Option<&Utf8Path>,
    findings: &mut Findings,
    progress: Progress<'_>,
) -> Result<String> {
    if which == Check::Series {
        // Regardless of the pin and the lock.
        let _held = hold(workspace, progress)?;
        let series = Parts::read(workspace).series?;
        let (patches, files) = (series.patches.len(), series.files.len());
        return Ok(format!("{patches} patches, {files} added files"));
    }
    let project = Project::open(workspace, progress)?;
    match which {
        Check::Series | Check::Lock => lock(&project),
        Check::Budget => budget(&project),
        Check::Lint => lint(&project, clang_format, findings, progress),
        Check::Watch => watched(&project, &mut findings.faults, progress),
        Check::Tree => {
            let tree = applied(workspace, project.lock()?, &project.series)?;
            Ok(format!("vendor/mlx is tree {tree}"))
        }
    }
}

/// Runs the checks of the patches and returns their findings. A fault that prevents several checks is reported once.
pub fn patches(
    workspace: &Workspace,
    clang_format: Option<&Utf8Path>,
    progress: Progress<'_>,
) -> Findings {
    let mut all = Findings::default();
    for which in [Check::Series, Check::Lock, Check::Budget, Check::Lint] {
        let findings = check(workspace, which, clang_format, progress);
        all.notes.extend(findings.notes);
        for fault in findings.faults {
            let text = fault.to_string();
            if all.faults.iter().all(|known| known.to_string() != text) {
                all.faults.push(fault);
            }
        }
    }
    all
}

fn lock(project: &Project) -> Result<String> {
    let lock = project.lock()?;
    match computed(project, lock) {
        Some(right) if right != *lock => Err(Error::LockDiffers(vec![format!(
            "the patches produce tree {}, but it has {}",
            right.final_tree, lock.final_tree
        )])),
        _ => match lock.other_copy(&project.workspace) {
            Some(path) => Err(Error::LockDiffers(vec![format!(
                "{path}, which is published, differs"
            )])),
            None => Ok(format!("mlx.lock names tree {}", lock.final_tree)),
        },
    }
}

/// The lock that the patches produce. `None` if MLX is not here or a patch does not apply: these are not faults of the
/// lock.
fn computed(project: &Project, lock: &Lock) -> Option<Lock> {
    let store = Store::open_existing(&project.workspace)?;
    store.source_of(lock.base_tree)?;
    let repo = store.overlay().ok()?;
    let resolved = project.series.resolve(&repo, lock.base_tree).ok()?;
    let pin = &project.manifest.mlx;
    Some(Lock::new(
        pin,
        lock.verdict_for(pin),
        &project.series,
        &resolved,
    ))
}

fn budget(project: &Project) -> Result<String> {
    project.within_budget()?;
    let changed = project.series.changed_lines();
    let most = project.manifest.overlay.budget_lines;
    Ok(format!(
        "{changed} of at most {most} upstream lines changed"
    ))
}

fn lint(
    project: &Project,
    clang_format: Option<&Utf8Path>,
    findings: &mut Findings,
    progress: Progress<'_>,
) -> Result<String> {
    let store = Store::open(&project.workspace)?;
    let base = project.fetch_base(&store, false, progress)?;
    let repo = store.overlay()?;
    let resolved = project.series.resolve(&repo, base)?;
    findings
        .faults
        .extend(project.series.faults(&repo, &resolved)?);
    match clang_format {
        Some(program) => check_format(program, &repo, base, resolved.final_tree(), findings)?,
        None => findings
            .notes
            .push("the format was not checked: clang-format was not found".to_owned()),
    }
    Ok("the patches apply and are in canonical form".to_owned())
}

fn watched(project: &Project, faults: &mut Vec<Error>, progress: Progress<'_>) -> Result<String> {
    let list = &project.manifest.watch;
    if list.is_empty() {
        return Ok("mlx.toml watches nothing".to_owned());
    }
    let store = Store::open(&project.workspace)?;
    let base = project.fetch_base(&store, false, progress)?;
    let found = sums(store.repo(), base, list)?;
    let known = Sums::load(&project.workspace)?;
    faults.extend(known.compare(&found, list));
    let count: usize = found.values().map(BTreeMap::len).sum();
    let version = &known.version;
    Ok(format!(
        "{count} watched definitions are the same as in MLX {version}"
    ))
}

/// Accepts the watched definitions in their current form: the patches were checked against them.
///
/// # Errors
/// A part of the project cannot be read; no source provides the pinned tree.
pub fn accept_watched(workspace: &Workspace, progress: Progress<'_>) -> Result<()> {
    let (_vendor, project) = Project::open_to_change(workspace, progress)?;
    let store = Store::open(workspace)?;
    let base = project.fetch_base(&store, false, progress)?;
    let definitions = sums(store.repo(), base, &project.manifest.watch)?;
    Sums {
        version: project.manifest.mlx.version.clone(),
        definitions,
    }
    .save(workspace)
}

/// Runs clang-format with MLX's own settings on the lines that the overlay adds.
pub(crate) fn check_format(
    program: &Utf8Path,
    repo: &Repository,
    base: Oid,
    patched: Oid,
    findings: &mut Findings,
) -> Result<()> {
    const SETTINGS: &str = ".clang-format";
    let Some(settings) = blob(repo, base, SETTINGS)? else {
        findings
            .notes
            .push(format!("the format was not checked: MLX has no {SETTINGS}"));
        return Ok(());
    };
    let version = process::run(process::command(program).arg("--version"), QUIET)?;
    let wanted = blob(repo, base, ".pre-commit-config.yaml")?
        .and_then(|text| wanted_version(&String::from_utf8_lossy(&text)));
    if let Some(wanted) = wanted.filter(|wanted| !version.contains(wanted.as_str())) {
        let found = version
            .split("version ")
            .last()
            .unwrap_or_default()
            .trim()
            .to_owned();
        findings.notes.push(format!(
            "the format was checked with clang-format {found}; MLX asks for {wanted}"
        ));
    }
    let temporary = Utf8PathBuf::from_path_buf(std::env::temp_dir())
        .map_err(|path| Error::source(path.display().to_string(), "the path is not UTF-8"))?;
    let scratch = Scratch::new(&temporary, "mlx-overlay-format-")?;
    let folder = scratch.path();
    fs::write(folder.join(SETTINGS), settings)?;
    for (path, lines) in added_lines(repo, base, patched)? {
        let Some(bytes) = blob(repo, patched, &path)? else {
            continue;
        };
        let file = folder.join(Utf8Path::new(&path).file_name().unwrap_or(&path));
        fs::write(&file, &bytes)?;
        let mut command = process::command(program);
        command
            .arg("--style=file")
            .args(
                lines
                    .iter()
                    .map(|(first, last)| format!("--lines={first}:{last}")),
            )
            .arg(&file);
        let formatted = process::run(&mut command, QUIET)?;
        for line in differing_lines(&String::from_utf8_lossy(&bytes), &formatted) {
            findings.faults.push(Error::Layout {
                path: path.clone(),
                line,
            });
        }
    }
    Ok(())
}

/// The first line of each place that the formatter would change.
fn differing_lines(before: &str, after: &str) -> Vec<usize> {
    let patch = diffy::DiffOptions::new()
        .set_context_len(0)
        .create_patch(before, after)
        .to_string();
    let start = |line: &str| {
        line.strip_prefix("@@ -")?
            .split([',', ' '])
            .next()?
            .parse()
            .ok()
    };
    patch.lines().filter_map(start).collect()
}

/// First and last lines.
type Ranges = Vec<(u32, u32)>;

/// The files that MLX's pre-commit formats, with the lines that the overlay adds.
fn added_lines(repo: &Repository, base: Oid, patched: Oid) -> Result<Vec<(String, Ranges)>> {
    let files = between(repo, base, patched, 0)?.into_iter();
    let formatted = files.filter(|(path, _)| path.ends_with(".h") || path.ends_with(".cpp"));
    let lines = formatted.map(|(path, hunks)| {
        let added = hunks.iter().filter(|hunk| hunk.new_lines > 0);
        (
            path,
            added
                .map(|hunk| (hunk.new_start, hunk.new_start + hunk.new_lines - 1))
                .collect(),
        )
    });
    Ok(lines
        .filter(|(_, lines): &(_, Vec<_>)| !lines.is_empty())
        .collect())
}

fn blob(repo: &Repository, tree: Oid, path: &str) -> Result<Option<Vec<u8>>> {
    let tree = repo.find_tree(tree)?;
    let Ok(entry) = tree.get_path(path.as_ref()) else {
        return Ok(None);
    };
    Ok(Some(repo.find_blob(entry.id())?.content().to_vec()))
}

/// The version of clang-format in a pre-commit configuration.
fn wanted_version(config: &str) -> Option<String> {
    let after = config.split_once("mirrors-clang-format")?.1;
    let rev = after
        .lines()
        .find_map(|line| line.trim().strip_prefix("rev:"))?;
    Some(rev.trim().trim_start_matches('v').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_version_that_pre_commit_pins() {
        let config = "repos:\n- repo: https://x/pre-commit-hooks\n  rev: v6.0.0\n- repo: https://x/mirrors-clang-format\n  rev: v21.1.8\n  hooks:\n";
        assert_eq!(wanted_version(config).as_deref(), Some("21.1.8"));
        assert_eq!(wanted_version("repos:\n"), None);
    }

    #[test]
    fn names_the_lines_that_a_formatter_changes() {
        assert_eq!(differing_lines("a\nb\nc\nd\n", "a\nB\nc\nD\nd\n"), [2, 3]);
        assert_eq!(differing_lines("a\n", "a\n"), [0_usize; 0]);
    }
}
