//! A git repository. The `git` program transports (it knows the user's proxies, keys and certificates, and building
//! xtask needs no TLS headers for it); libgit2 reads what came.

use git2::Oid;

use crate::error::{Error, Result};
use crate::manifest::Pin;
use crate::process;
use crate::progress::Progress;
use crate::store::Store;

/// Set by git for its hooks; they would send us to another repository.
const FOREIGN_VARIABLES: [&str; 7] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
];

/// Fetches the pin's tag, or its commit where there is no tag, without history; gives the commit and its tree.
///
/// # Errors
/// What `git` says, or that the name does not lead to a commit.
pub(super) fn fetch(
    store: &Store,
    url: &str,
    pin: &Pin,
    progress: Progress<'_>,
) -> Result<(Oid, Oid)> {
    match (&pin.tag, pin.full_commit()) {
        (Some(tag), _) => fetch_name(store, url, &format!("refs/tags/{tag}"), progress),
        (None, Some(commit)) => fetch_name(store, url, &commit.to_string(), progress),
        (None, None) => {
            let message = format!(
                "expected a tag or a whole commit id in the pin of {}; it has neither",
                pin.version
            );
            Err(Error::source(url, message))
        }
    }
}

/// Fetches what a reference (`refs/tags/v1`) or a whole commit id leads to.
pub(crate) fn fetch_name(
    store: &Store,
    url: &str,
    remote: &str,
    progress: Progress<'_>,
) -> Result<(Oid, Oid)> {
    let local = format!("refs/fetched/{}", remote.trim_start_matches("refs/tags/"));
    let mut command = process::command("git");
    command
        .arg(format!("--git-dir={}", store.folder()))
        .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"])
        // A server that stops talking must not hold up the sources that come after it.
        .args([
            "-c",
            "http.lowSpeedLimit=1000",
            "-c",
            "http.lowSpeedTime=30",
        ])
        .args([
            "fetch",
            "--depth=1",
            "--no-tags",
            "--no-write-fetch-head",
            "--progress",
            "--",
        ])
        .arg(url)
        .arg(format!("+{remote}:{local}"))
        .env("GIT_TERMINAL_PROMPT", "0");
    for variable in FOREIGN_VARIABLES {
        command.env_remove(variable);
    }
    process::run(&mut command, progress)?;
    let commit = store.repo().find_reference(&local)?.peel_to_commit()?;
    Ok((commit.id(), commit.tree_id()))
}
