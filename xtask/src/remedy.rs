//! Remedies for errors of the engine. The engine reports facts; the commands that help are known here.

use patchset::Error;
use patchset::error::RepositoryFault;

/// The remedy for patches that cannot be read. It keeps local changes, including new files.
pub(crate) const PATCHES: &str = "`git stash push --include-untracked -- patches` removes and keeps the local changes; or fix them (docs/guide/write-a-patch.md)";

/// The remedy for an error, as the end of its sentence; `None` if the error's text is enough.
fn of(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::Git(_) => {
            "if the files below target/overlay are damaged, delete that folder; they are fetched again"
        }
        Error::NoWorkspace(_) => "run this inside a checkout of mlx-overlay",
        Error::NoProgram(_) => "install it",
        Error::Format { file, .. } => match file.as_str() {
            "mlx.lock" => {
                "restore the committed file (`git checkout HEAD -- mlx.lock`), or delete it and run `cargo xtask apply-overlay --update-lock`"
            }
            "mlx.toml" => {
                "fix that line, or restore the committed file with `git checkout HEAD -- mlx.toml`"
            }
            "state.toml" => {
                "abort it with `cargo xtask bump-pin --abort`, or lay the patches out again with `cargo xtask patch edit --discard`"
            }
            _ => return None,
        },
        Error::Sources { failures, .. } if failures.iter().any(|one| one.other.is_some()) => {
            "if a reconstructed pin should have another tree, use `--accept-tree <its id>`; docs/guide/offline.md has the ways without a network"
        }
        Error::Sources { .. } | Error::Input { .. } => {
            "docs/guide/offline.md has the ways without a network"
        }
        Error::Repository { fault, .. } => match fault {
            RepositoryFault::Unreadable(_) => {
                "`git status` there may show why; an archive of its commit (`git archive`) can be used instead"
            }
            RepositoryFault::Lacks { .. } => "`git fetch --tags` there may fetch it",
            RepositoryFault::Incomplete(_) => {
                "`git fetch --refetch --no-filter` there fetches them"
            }
            _ => return None,
        },
        Error::LineEnds(_) => {
            "git writes them if `core.autocrlf` is set; `cargo xtask doctor` shows how to restore the files"
        }
        Error::NotReplaceable(_) => "to pin another version, use `cargo xtask bump-pin`",
        Error::Series(_) => PATCHES,
        Error::LockDiffers(_) => {
            "if the change is intended, run `cargo xtask apply-overlay --update-lock`"
        }
        Error::LockMissing => "run `cargo xtask apply-overlay --update-lock` to write it",
        Error::OverBudget { .. } => {
            "make them smaller, or raise `budget-lines` with a record of why in docs/decisions"
        }
        Error::NotCanonical(_) => {
            "`cargo xtask patch edit` and `cargo xtask patch export` write the canonical form"
        }
        Error::Layout { .. } => "format it in the worktree made by `cargo xtask patch edit`",
        Error::WatchedChanged { .. } => {
            "check the claims that depend on them, update the code that follows them, then run `cargo xtask check watch --accept`"
        }
        Error::WatchedMissing => "run `cargo xtask check watch --accept` to write it",
        Error::Tampered(_) => {
            "move the edits into a patch, or run `cargo xtask apply-overlay --discard-edits`, which keeps a copy"
        }
        Error::NotAFolder(_) => "move it away, then run `cargo xtask apply-overlay`",
        Error::NotApplied(_) => "run `cargo xtask apply-overlay`",
        Error::NoSuchPin { .. } => "use `--source` with a folder, an archive or another repository",
        Error::BumpPending { .. } => {
            "finish it with `cargo xtask bump-pin --continue` or abort it with `cargo xtask bump-pin --abort`; resolutions are remembered"
        }
        Error::NothingDecided(_) => "to abort the whole bump, run `cargo xtask bump-pin --abort`",
        Error::BumpEdited { .. } => {
            "finish it (`cargo xtask bump-pin --continue`), copy what you need, or discard it with `cargo xtask bump-pin --back --discard`"
        }
        Error::NoBump => "start one with `cargo xtask bump-pin <version|tag|commit>`",
        Error::BumpStale | Error::BumpCleared => {
            "run `cargo xtask bump-pin --abort` and start again; resolutions are remembered"
        }
        Error::Unresolved { .. } => "then run `cargo xtask bump-pin --continue`",
        Error::NoEdit => "run `cargo xtask patch edit`",
        Error::EditOpen(_) => {
            "run `cargo xtask patch export`, or lay it out again with `cargo xtask patch edit --discard`"
        }
        Error::EditStale => {
            "keep your commits as files with `git format-patch`, then run `cargo xtask patch edit --discard`"
        }
        Error::LaterEmpty(_) => {
            "to remove it from the series, run `cargo xtask patch export --drop-empty`"
        }
        Error::LaterConflict { .. } => {
            "resolve the files there, `git add` them, run `git cherry-pick --continue` there (`--skip` drops the patch), then `cargo xtask patch export`"
        }
        _ => return None,
    })
}

/// An error of the engine with its remedy.
pub(crate) fn described(error: &Error) -> String {
    with(&error.to_string(), of(error))
}

/// An error as a command prints it: its chain of causes, and the remedy for the engine's part.
pub fn shown(error: &anyhow::Error) -> String {
    let ours = error.chain().find_map(|cause| cause.downcast_ref());
    with(&format!("{error:#}"), ours.and_then(of))
}

fn with(text: &str, remedy: Option<&str>) -> String {
    match remedy {
        // A list already ends with a line.
        Some(remedy) if text.contains('\n') => format!("{text}\n{remedy}"),
        Some(remedy) => format!("{text}; {remedy}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn the_remedy_comes_after_the_whole_chain() {
        let error = Err::<(), _>(Error::LockMissing).context("cannot build");
        assert_eq!(
            shown(&error.unwrap_err()),
            "cannot build: mlx.lock is missing; run `cargo xtask apply-overlay --update-lock` to write it"
        );
        assert_eq!(shown(&anyhow::anyhow!("another")), "another");
    }

    #[test]
    fn a_list_keeps_its_lines() {
        let error = Error::Unresolved {
            worktree: "w".into(),
            faults: vec!["a: a marker is left".to_owned()],
        };
        assert_eq!(
            described(&error),
            "w is not resolved yet:\n  - a: a marker is left\nthen run `cargo xtask bump-pin --continue`"
        );
    }

    #[test]
    fn a_lock_that_does_not_read_says_how_to_get_another() {
        let describe = |file: &str| {
            described(&Error::Format {
                file: file.into(),
                line: 1,
                message: "m".to_owned(),
            })
        };
        assert!(describe("mlx.lock").contains("delete it and run `cargo xtask apply-overlay"));
        assert_eq!(describe("other.toml"), "other.toml:1: m");
    }
}
