//! A git repository. The `git` program does the transport (it uses the user's proxies, keys and certificates, and
//! building xtask needs no TLS headers for it); libgit2 reads the result.

use git2::{Oid, Repository, RepositoryInitOptions};

use crate::error::{Error, Result};
use crate::model::manifest::{Pin, TreeOrigin};
use crate::process;
use crate::progress::Progress;
use crate::sources::store::Store;

/// Variables that git sets for its hooks; they would point to another repository.
const FOREIGN_VARIABLES: [&str; 7] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
];

/// Fetches the pin's tag, or its commit if there is no tag, without history; returns the commit and its tree. If a pin
/// was reconstructed from files alone, fetches the usual tag for a release of its version.
///
/// # Errors
/// The error of `git`, or that the name does not lead to a commit.
pub(super) fn fetch(
    store: &Store,
    url: &str,
    pin: &Pin,
    progress: Progress<'_>,
) -> Result<(Oid, Oid)> {
    match (&pin.tag, pin.full_commit()) {
        (Some(tag), _) => fetch_name(store, url, &format!("refs/tags/{tag}"), progress),
        (None, Some(commit)) => fetch_name(store, url, &commit.to_string(), progress),
        (None, None) if pin.commit.is_none() && pin.tree_origin == TreeOrigin::Reconstructed => {
            fetch_name(store, url, &format!("refs/tags/v{}", pin.version), progress)
        }
        (None, None) => {
            let message = format!(
                "the pin of {} has neither a tag nor a complete commit id",
                pin.version
            );
            Err(Error::source(url, message))
        }
    }
}

/// Fetches what a reference (`refs/tags/v1`) or a complete commit id points to.
///
/// Git works in a separate repository that shares the store's object folder: a killed git, or one that outlives a
/// killed run, holds locks there and not in the store.
pub(crate) fn fetch_name(
    store: &Store,
    url: &str,
    remote: &str,
    progress: Progress<'_>,
) -> Result<(Oid, Oid)> {
    const LOCAL: &str = "refs/fetched";
    let scratch = store.scratch()?;
    let folder = scratch.path();
    let mut options = RepositoryInitOptions::new();
    options.bare(true).external_template(false);
    let landing = Repository::init_opts(folder, &options)?;
    let mut command = process::command("git");
    command
        .arg(format!("--git-dir={folder}"))
        .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"])
        // A server that stops responding must not delay the next sources.
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
        .arg(format!("+{remote}:{LOCAL}"))
        .env("GIT_TERMINAL_PROMPT", "0");
    for variable in FOREIGN_VARIABLES {
        command.env_remove(variable);
    }
    command.env("GIT_OBJECT_DIRECTORY", store.folder().join("objects"));
    process::run(&mut command, progress)?;
    let name = landing.refname_to_id(LOCAL)?;
    let commit = store.repo().find_object(name, None)?.peel_to_commit()?;
    Ok((commit.id(), commit.tree_id()))
}
