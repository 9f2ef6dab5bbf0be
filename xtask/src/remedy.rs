//! What to do about an error of the engine. The engine names facts; the commands that help are known here.

use patchset::Error;
use patchset::error::RepositoryFault;

/// What helps against patches that do not read. What was changed in them is kept, new files too.
pub(crate) const PATCHES: &str = "`git stash push --include-untracked -- patches` takes what was changed out and keeps it; or mend it (docs/write-a-patch.md)";

/// What helps against an error, as the end of its sentence; `None` if its text says all there is to say.
fn of(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::Git(_) => {
            "if those below target/overlay are damaged, delete that folder, and they are fetched again"
        }
        Error::NoWorkspace(_) => "run this inside a checkout of mlx-overlay",
        Error::NoProgram(_) => "install it",
        Error::Format { file, .. } => match file.as_str() {
            "mlx.lock" => {
                "take the committed file back (`git checkout HEAD -- mlx.lock`), or delete it and run `cargo xtask apply-overlay --update-lock`"
            }
            "mlx.toml" => {
                "mend that line, or take the committed file back with `git checkout HEAD -- mlx.toml`"
            }
            "state.toml" => {
                "give it up with `cargo xtask bump-pin --abort`, or lay the patches out again with `cargo xtask patch edit --discard`"
            }
            _ => return None,
        },
        Error::Sources { failures, .. } if failures.iter().any(|one| one.other.is_some()) => {
            "if another tree is the right one for a reconstructed pin, `--accept-tree <its id>` takes it; docs/offline.md tells the ways without a network"
        }
        Error::Sources { .. } | Error::Input { .. } => {
            "docs/offline.md tells the ways without a network"
        }
        Error::Repository { fault, .. } => match fault {
            RepositoryFault::Unreadable(_) => {
                "`git status` there may say why; an archive of its commit (`git archive`) can be taken in its place"
            }
            RepositoryFault::Lacks { .. } => "`git fetch --tags` there may fetch it",
            RepositoryFault::Incomplete(_) => {
                "`git fetch --refetch --no-filter` there fetches them"
            }
            _ => return None,
        },
        Error::LineEnds(_) => {
            "git wrote them if `core.autocrlf` is set; `cargo xtask doctor` says how to take the files back"
        }
        Error::NotReplaceable(_) => "another version is pinned with `cargo xtask bump-pin`",
        Error::Series(_) => PATCHES,
        Error::LockDiffers(_) => {
            "if the change is meant, run `cargo xtask apply-overlay --update-lock`"
        }
        Error::LockMissing => "`cargo xtask apply-overlay --update-lock` writes it",
        Error::OverBudget { .. } => {
            "make them smaller, or raise `budget-lines` with a record of why in docs/decisions"
        }
        Error::NotCanonical(_) => {
            "`cargo xtask patch edit` and `cargo xtask patch export` write that"
        }
        Error::Layout { .. } => "format it in the worktree of `cargo xtask patch edit`",
        Error::WatchedChanged { .. } => {
            "check the claims that rest on them, bring what follows them up to date, then run `cargo xtask check watch --accept`"
        }
        Error::WatchedMissing => "`cargo xtask check watch --accept` writes it",
        Error::Tampered(_) => {
            "move the edits into a patch, or run `cargo xtask apply-overlay --discard-edits`, which keeps a copy"
        }
        Error::NotAFolder(_) => "move it away, then run `cargo xtask apply-overlay`",
        Error::NotApplied(_) => "run `cargo xtask apply-overlay`",
        Error::NoSuchPin { .. } => {
            "`--source` takes it from a folder, an archive or another repository"
        }
        Error::BumpPending { .. } => {
            "finish it with `cargo xtask bump-pin --continue` or give it up with `cargo xtask bump-pin --abort`; what was decided is remembered"
        }
        Error::NothingDecided(_) => "`cargo xtask bump-pin --abort` gives the whole bump up",
        Error::BumpEdited { .. } => {
            "finish it (`cargo xtask bump-pin --continue`), copy what you need, or lose it with `cargo xtask bump-pin --back --discard`"
        }
        Error::NoBump => "`cargo xtask bump-pin <version|tag|commit>` begins one",
        Error::BumpStale | Error::BumpCleared => {
            "run `cargo xtask bump-pin --abort` and begin again; what was decided is remembered"
        }
        Error::Unresolved { .. } => "then run `cargo xtask bump-pin --continue`",
        Error::NoEdit => "`cargo xtask patch edit` does that",
        Error::EditOpen(_) => {
            "run `cargo xtask patch export`, or lay it out again with `cargo xtask patch edit --discard`"
        }
        Error::EditStale => {
            "keep your commits as files with `git format-patch`, then run `cargo xtask patch edit --discard`"
        }
        Error::LaterEmpty(_) => {
            "`cargo xtask patch export --drop-empty` takes it out of the series"
        }
        Error::LaterConflict { .. } => {
            "resolve the files there, `git add` them, run `git cherry-pick --continue` there (`--skip` drops the patch), then `cargo xtask patch export`"
        }
        _ => return None,
    })
}

/// An error of the engine with what to do about it.
pub(crate) fn told(error: &Error) -> String {
    with(&error.to_string(), of(error))
}

/// An error as a command ends with it: its chain of causes, and what to do about the engine's part of it.
pub fn shown(error: &anyhow::Error) -> String {
    let ours = error.chain().find_map(|cause| cause.downcast_ref());
    with(&format!("{error:#}"), ours.and_then(of))
}

fn with(text: &str, remedy: Option<&str>) -> String {
    match remedy {
        // A list ends with its last line.
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
            "cannot build: mlx.lock is missing; `cargo xtask apply-overlay --update-lock` writes it"
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
            told(&error),
            "w is not resolved yet:\n  - a: a marker is left\nthen run `cargo xtask bump-pin --continue`"
        );
    }

    #[test]
    fn a_lock_that_does_not_read_says_how_to_get_another() {
        let told_of = |file: &str| {
            told(&Error::Format {
                file: file.into(),
                line: 1,
                message: "m".to_owned(),
            })
        };
        assert!(told_of("mlx.lock").contains("delete it and run `cargo xtask apply-overlay"));
        assert_eq!(told_of("other.toml"), "other.toml:1: m");
    }
}
