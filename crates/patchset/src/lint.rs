//! What is wrong with `patches/`, all of it at once: headers, series and folder and lock, the budget, the canonical
//! bytes, and the format of the lines that we add.

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use git2::{Oid, Repository};

use crate::bump::between;
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::manifest::Manifest;
use crate::patch;
use crate::process;
use crate::progress::{Progress, QUIET};
use crate::series::Series;
use crate::source::{self, Request};
use crate::store::Store;
use crate::workspace::Workspace;

/// What a lint found.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// What is wrong; nothing where all is well.
    pub faults: Vec<String>,
    /// What could not be checked, or not as MLX would.
    pub notes: Vec<String>,
}

/// Checks `patches/`. `clang_format` is the program to use; without one, the format is not checked and a note says so.
///
/// # Errors
/// What keeps the checks from being made at all: an unreadable file, no source for the pinned tree. What the checks find
/// is no error.
pub fn lint(
    workspace: &Workspace,
    clang_format: Option<&Utf8Path>,
    progress: Progress<'_>,
) -> Result<Findings> {
    let mut findings = Findings::default();
    let manifest = Manifest::load(&workspace.manifest_path())?;
    let series = match Series::load(&workspace.patches()) {
        Ok(series) => series,
        // Without a series there is nothing more to look at.
        Err(Error::Io(error)) => return Err(Error::Io(error)),
        Err(error) => {
            findings.faults.push(error.to_string());
            return Ok(findings);
        }
    };
    let lock = Lock::load(&workspace.lock_path())?;
    match Lock::load_for(&workspace.lock_path(), &manifest.mlx, &series) {
        Ok(_) => {}
        Err(error) => findings.faults.push(error.to_string()),
    }
    let (changed, budget) = (series.changed_lines(), manifest.overlay.budget_lines);
    if changed > budget {
        findings.faults.push(format!(
            "the patches change {changed} upstream lines, the budget in mlx.toml is {budget}"
        ));
    }

    let store = Store::open(workspace)?;
    let request = Request {
        pin: &manifest.mlx,
        lock: lock.as_ref(),
        offline: false,
        refresh: false,
        source: None,
    };
    let base = source::fetch(workspace, &store, request, progress)?.tree;
    let repo = store.overlay()?;
    let resolved = match series.resolve(&repo, base) {
        Ok(resolved) => resolved,
        Err(error) => {
            findings.faults.push(error.to_string());
            return Ok(findings);
        }
    };
    let mut before = base;
    for (patch, after) in series.patches.iter().zip(&resolved.trees) {
        let adds: Vec<_> = patch.header.adds().collect();
        let canonical = patch::export(&repo, &patch.name, &patch.header, before, *after, &adds)?;
        if canonical != fs::read(workspace.patches().join(format!("{}.patch", patch.name)))? {
            findings.faults.push(format!(
                "patches/{}.patch is not in its canonical form; `cargo xtask patch edit` and `cargo xtask patch export` write that",
                patch.name
            ));
        }
        before = *after;
    }
    let Some(program) = clang_format else {
        findings
            .notes
            .push("the format was not checked: there is no clang-format".to_owned());
        return Ok(findings);
    };
    check_format(program, &repo, base, resolved.final_tree(), &mut findings)?;
    Ok(findings)
}

/// Has clang-format look at the lines that the overlay adds, with MLX's own settings.
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
    let scratch = tempfile::tempdir()?;
    let folder = Utf8PathBuf::from_path_buf(scratch.path().to_owned())
        .map_err(|path| Error::source(path.display().to_string(), "the path is not UTF-8"))?;
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
            findings.faults.push(format!(
                "{path}:{line}: not as MLX's clang-format would have it"
            ));
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

/// The files that MLX's pre-commit formats, and their lines that the overlay adds.
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
