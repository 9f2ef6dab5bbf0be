//! The checkout: its sources, disk space, network access, and the settings in the environment.

use std::fmt::Display;
use std::io;

use camino::{Utf8Path, Utf8PathBuf};
use dispatch_plan::Policy;
use mlx_prefix::BUILDS;
use patchset::check::{Check, check};
use patchset::lock::{Lock, base_tree};
use patchset::manifest::Source;
use patchset::progress::QUIET;
use patchset::project::Parts;
use patchset::store::Store;
use patchset::{Manifest, Workspace};

use walkdir::WalkDir;

use super::finding::{Finding, Status};
use crate::build::unquotable;
use crate::files::walk;
use crate::host::{Host, Os};
use crate::proc::quote;
use crate::remedy::{PATCHES, described};
use crate::requirements;
use crate::status::waiting;

/// MiB that a build needs with its prefix and the tests that link it; and how much should be free.
const DISK_NEEDED: u64 = 1024;
const DISK_WISHED: u64 = 4096;

pub(super) fn examine(host: &Host, root: &Utf8Path) -> Vec<Finding> {
    let workspace = Workspace::at(root);
    let mut findings = vec![
        super::tools::required(host, "git", requirements::git(host)),
        super::git::settings(host, &workspace),
        disk(host, &workspace),
        place(host, &workspace),
        writable(
            "target",
            build_places(&workspace),
            "target/mlx and target/overlay are writable",
        ),
        writable("vendor", vec![workspace.vendor()], "vendor is writable"),
        policy(host),
    ];
    if host.os == Os::Linux {
        findings.push(kernel_cache(host, &workspace));
    }
    // A run that changes the project may take long; unfinished work is not a fault.
    if let Ok(Some(run)) = patchset::project::changed_by(&workspace) {
        let found = format!("the project is being changed by {run}");
        let remedy = "wait until it ends, or stop it; then run this again";
        findings.push(Finding::warning("lock-held", found, remedy));
        return findings;
    }
    if let Some(finding) = merge(&workspace) {
        findings.push(finding);
        return findings;
    }
    // First finishes a change that a killed run had decided. If that fails, the tree's check reports why.
    drop(patchset::project::hold(&workspace, QUIET));
    let Parts {
        manifest,
        series,
        lock,
    } = Parts::read(&workspace);
    let manifest = match manifest {
        Ok(manifest) => manifest,
        Err(error) => {
            let remedy =
                "fix that line, or restore the committed file: `git checkout HEAD -- mlx.toml`";
            findings.push(Finding::error("pin", error.to_string(), remedy));
            return findings;
        }
    };
    let broken = match (&lock, &series) {
        (Err(error), _) => Some(error.to_string()),
        (Ok(None), _) => Some("mlx.lock is missing".to_owned()),
        // Faults of the patches are not the lock's.
        (_, Err(_)) => None,
        _ => {
            let faults = check(&workspace, Check::Lock, None, QUIET).faults;
            faults.first().map(ToString::to_string)
        }
    };
    let lock = lock.ok().flatten();
    findings.extend(bump(&workspace));
    findings.extend(sources(host, &workspace, &manifest, lock.as_ref()));
    findings.push(match broken {
        // Only a valid lock shows whether the tree is right.
        Some(message) => Finding::error(
            "lock",
            message,
            "`git checkout HEAD -- mlx.lock`; then, if you changed mlx.toml or the patches on purpose, \
             `cargo xtask apply-overlay --update-lock`",
        ),
        None => tree(&workspace, series.is_ok()),
    });
    findings
}

/// A bump that waits for a person; `None` if there is none.
fn bump(workspace: &Workspace) -> Option<Finding> {
    let id = "bump";
    let abort = "`cargo xtask bump-pin --abort`";
    match patchset::bump::waiting(workspace) {
        Ok(None) => None,
        Ok(Some(bump)) => {
            let remedy = match bump.stale {
                true => format!("{abort}, and start again"),
                false => format!("`cargo xtask bump-pin --continue`, or {abort}"),
            };
            Some(Finding::warning(id, waiting(&bump), remedy))
        }
        Err(error) => Some(Finding::warning(id, error.to_string(), abort)),
    }
}

fn disk(host: &Host, workspace: &Workspace) -> Finding {
    let id = "disk";
    let root = workspace.root();
    let folder = workspace.root().join(BUILDS);
    let folder = folder
        .ancestors()
        .find(|path| path.exists())
        .unwrap_or(root);
    // -P: one line for each file system, however long its name is.
    let free = host
        .cmd("df")
        .args(["-Pk", folder.as_str()])
        .read()
        .ok()
        .and_then(|text| {
            let line = text.lines().nth(1)?.to_owned();
            line.split_whitespace().nth(3)?.parse::<u64>().ok()
        });
    let remedy = format!(
        "free some space: {root}/target/mlx and {root}/target can be deleted and built again; CARGO_TARGET_DIR can point elsewhere"
    );
    match free.map(|kib| kib / 1024) {
        None => Finding::warning(
            id,
            "`df -Pk` does not show how much is free",
            "check it yourself: a build needs 1 GB",
        ),
        Some(mib) if mib < DISK_NEEDED => Finding::error(
            id,
            format!("{mib} MiB free, but a build needs about {DISK_NEEDED}"),
            remedy,
        ),
        Some(mib) if mib < DISK_WISHED => Finding::warning(
            id,
            format!("{mib} MiB free, but a build with all tests needs about {DISK_WISHED}"),
            remedy,
        ),
        Some(mib) => Finding::ok(id, format!("{mib} MiB free")),
    }
}

/// Files with git's conflict markers, because two branches changed them. Other faults in them follow from that.
fn merge(workspace: &Workspace) -> Option<Finding> {
    let mut files = vec![workspace.manifest_path(), workspace.lock_path()];
    files.extend(walk(&workspace.patches()).unwrap_or_default());
    let marked = |file: &Utf8PathBuf| {
        let text = fs_err::read(file).unwrap_or_default();
        let mut lines = text.split(|byte| *byte == b'\n');
        lines.any(|line| line.starts_with(b"<<<<<<< "))
            && lines.any(|line| line.starts_with(b">>>>>>> "))
    };
    files.retain(marked);
    let name = |file: &Utf8PathBuf| {
        let relative = file.strip_prefix(workspace.root());
        quote(relative.unwrap_or(file))
    };
    let names: Vec<_> = files.iter().map(name).collect();
    if names.is_empty() {
        return None;
    }
    // The lock is computed from the others, so it need not be resolved by hand.
    let locks = ["mlx.lock", Workspace::LOCK_COPY];
    let locks: Vec<_> = locks
        .into_iter()
        .filter(|lock| workspace.root().join(lock).exists())
        .collect();
    let locks = locks.join(" ");
    let lock = format!(
        "`git checkout HEAD -- {locks} && cargo xtask apply-overlay --update-lock && git add {locks}`"
    );
    let mut others = names.clone();
    others.retain(|name| name != "mlx.lock");
    let remedy = match others.is_empty() {
        true => lock,
        false => format!("resolve {}; then {lock}", others.join(" ")),
    };
    let found = format!("a merge left conflicts in {}", names.join(" "));
    Some(Finding::error("merge", found, remedy))
}

/// Whether the checkout's path is one that a build accepts.
fn place(host: &Host, workspace: &Workspace) -> Finding {
    let id = "path";
    let root = workspace.root();
    let Some(bad) = unquotable(root) else {
        let found = "the checkout's path has no character that CMake or a shell treats specially";
        return Finding::ok(id, found);
    };
    let found = format!("the checkout's path contains {bad:?}, which makes builds fail: {root}");
    let remedy = format!("`mv {} ~/mlx-overlay`, or to another place", quote(root));
    match host.os {
        Os::Linux => Finding::error(id, found, remedy),
        // Our build starts no shell on macOS, but MLX's may; this was not tried.
        Os::MacOs => Finding::warning(id, found, remedy),
    }
}

/// Where the simulated device caches its kernels.
fn kernel_cache(host: &Host, workspace: &Workspace) -> Finding {
    let id = "kernel-cache";
    let set = |name: &str| host.var(name).map(Into::into);
    let Ok(folder) = Utf8PathBuf::try_from(metal_sim::cache_folder(set)) else {
        return Finding::warning(id, "the cache's path is not UTF-8", "set MTL_SIM_CACHE");
    };
    let Some((_, why)) = unwritable(&folder) else {
        return Finding::ok(id, format!("{folder} is writable"));
    };
    let other = workspace.root().join("target/metal-sim");
    let remedy = format!("export MTL_SIM_CACHE={}", quote(other));
    // Only a folder that was named explicitly has no fallback.
    if host.var("MTL_SIM_CACHE").is_none_or(str::is_empty)
        && let Ok(second) = Utf8PathBuf::try_from(metal_sim::cache_folder(|_| None))
        && unwritable(&second).is_none()
    {
        let found = format!(
            "kernels are cached in {second}, which may be cleared, because {folder} cannot be used: {why}"
        );
        return Finding::warning(id, found, remedy);
    }
    let found = format!("kernels cannot be cached in {folder}: {why}");
    Finding::error(id, found, remedy)
}

/// The folders that a build and a download write to.
fn build_places(workspace: &Workspace) -> Vec<Utf8PathBuf> {
    let builds = workspace.root().join(BUILDS);
    let mut places = vec![builds.clone(), workspace.cache()];
    // A folder that another user made (with sudo, for example) blocks a build, even if its parent is writable.
    let below = WalkDir::new(builds)
        .min_depth(1)
        .max_depth(2)
        .sort_by_file_name();
    let entries = below.into_iter().filter_map(Result::ok);
    let paths = entries.filter_map(|entry| Utf8PathBuf::try_from(entry.into_path()).ok());
    places.extend(paths.filter(|path| path.is_dir()));
    places
}

/// Whether these folders are writable, as far as they exist.
fn writable(id: &'static str, places: Vec<Utf8PathBuf>, ok: &str) -> Finding {
    let fault = places
        .iter()
        .find_map(|place| Some((place, unwritable(place)?)));
    let Some((place, (error, why))) = fault else {
        return Finding::ok(id, ok);
    };
    let place = nearest(place);
    let found = format!("{place} is not writable: {why}");
    Finding::error(id, found, make_writable(&place, error))
}

/// Why a folder, or the folder in which it would be made, is not writable.
fn unwritable(folder: &Utf8Path) -> Option<(io::ErrorKind, String)> {
    let folder = nearest(folder);
    // A file without a name: it leaves no trace.
    let error = tempfile::tempfile_in(&folder).err()?.kind();
    let why = match folder.exists() {
        true => error.to_string(),
        false => "its target does not exist".to_owned(),
    };
    Some((error, why))
}

fn make_writable(folder: &Utf8Path, error: io::ErrorKind) -> String {
    let folder = quote(folder);
    match error {
        io::ErrorKind::PermissionDenied => {
            format!("sudo chown -R \"$(id -un)\" {folder} && chmod -R u+rwX {folder}")
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("have the file system of {folder} mounted for writing, or move the checkout")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::NotFound => {
            format!("`rm {folder}`; a folder is created there")
        }
        _ => format!("`ls -ld {folder}` and `df {folder}` may show more"),
    }
}

/// The folder, or the closest existing one above it. A link without a target counts too.
fn nearest(folder: &Utf8Path) -> Utf8PathBuf {
    let there = |path: &&Utf8Path| fs_err::symlink_metadata(*path).is_ok();
    let nearest = folder.ancestors().find(there);
    nearest.unwrap_or(folder).to_owned()
}

fn policy(host: &Host) -> Finding {
    if let Some(value) = host.var("MLX_QMV_POLICY") {
        return Finding::error(
            "policy",
            format!("MLX_QMV_POLICY={value} is no longer read: operations on a GPU will fail"),
            "`unset MLX_QMV_POLICY`; use MLX_ROW_POLICY, in which streamed is now called exact, and the former exact is exact:all",
        );
    }
    match host.var("MLX_ROW_POLICY") {
        None => Finding::ok("policy", "MLX_ROW_POLICY is not set: default policy"),
        Some(value) => match value.parse::<Policy>() {
            Ok(policy) => Finding::ok(
                "policy",
                format!("MLX_ROW_POLICY={policy}, for every program"),
            ),
            Err(error) => Finding::error(
                "policy",
                format!("MLX_ROW_POLICY={value}: operations on a GPU will fail: {error}"),
                "`unset MLX_ROW_POLICY`, or set it to a policy",
            ),
        },
    }
}

/// Whether MLX and its inputs are here; if not, whether they can be fetched.
fn sources(
    host: &Host,
    workspace: &Workspace,
    manifest: &Manifest,
    lock: Option<&Lock>,
) -> Vec<Finding> {
    let id = "sources";
    let base = base_tree(&manifest.mlx, lock);
    let here = Store::open_existing(workspace).and_then(|store| store.source_of(base));
    if let Some(source) = here {
        let found = format!(
            "MLX {} is here, from {}; it needs no network",
            manifest.mlx.title(),
            source.trim()
        );
        return vec![Finding::ok(id, found)];
    }
    let offline = host.var("CARGO_NET_OFFLINE") == Some("true");
    let version = &manifest.mlx.title();
    let mut findings = vec![if offline {
        let found = format!(
            "MLX {version} has not been fetched yet, and CARGO_NET_OFFLINE=true forbids the network"
        );
        let remedy = "run `cargo xtask fetch` with CARGO_NET_OFFLINE unset; docs/guide/offline.md has the ways without a network";
        Finding::warning(id, found, remedy)
    } else {
        Finding::warning(
            id,
            format!("MLX {version} has not been fetched yet"),
            "`cargo xtask fetch`; docs/guide/offline.md has the ways without a network",
        )
    }];
    for source in &manifest.mlx.sources {
        // Cargo follows the variable itself and answers from its cache.
        if !(offline && matches!(source, Source::Git(_))) {
            findings.extend(reach(host, manifest, source));
        }
    }
    let failed = |finding: &Finding| finding.status != Status::Ok;
    // One source is enough.
    if findings[1..].iter().any(|finding| !failed(finding)) {
        for finding in &mut findings[1..] {
            if failed(finding) {
                finding.status = Status::Warning;
            }
        }
    }
    findings
}

fn reach(host: &Host, manifest: &Manifest, source: &Source) -> Option<Finding> {
    match source {
        Source::Git(git) => {
            let tag = manifest.mlx.tag.as_deref().unwrap_or("HEAD");
            let answer = host
                .cmd("git")
                // The doctor must not hang on a dead connection.
                .args(["-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=10"])
                .args(["ls-remote", "--exit-code", &git.url, tag])
                .env("GIT_TERMINAL_PROMPT", "0")
                .read();
            Some(reached(
                "git-source",
                &git.url,
                answer,
                "check proxy (`git config http.proxy`), DNS and certificates",
            ))
        }
        Source::Carrier(carrier) => {
            let package = format!("{}@{}", carrier.name, carrier.version);
            let cargo = host.var("CARGO").unwrap_or("cargo");
            let answer = host
                .cmd(cargo)
                .args(["info", "--quiet", &package])
                .dir(host_folder())
                .read();
            Some(reached(
                "registry",
                &format!("package {package}"),
                answer,
                "check cargo's `[source]`, `http.proxy` and `net.offline`; `cargo xtask fetch --source PATH` needs no registry",
            ))
        }
        // The server behind it is contacted only when it is fetched.
        Source::Archive(_) => None,
    }
}

/// A folder outside every workspace, so that cargo reads the user's settings and no manifest.
fn host_folder() -> std::path::PathBuf {
    std::env::temp_dir()
}

fn reached(
    id: &'static str,
    what: &str,
    answer: anyhow::Result<impl Display>,
    remedy: &str,
) -> Finding {
    match answer {
        Ok(_) => Finding::ok(id, format!("{what} answers")),
        Err(error) => {
            // Cargo prints its causes on separate lines.
            let why: Vec<_> = error
                .to_string()
                .split_whitespace()
                .map(str::to_owned)
                .collect();
            let found = format!("{what} cannot be reached: {}", why.join(" "));
            Finding::error(id, found, remedy)
        }
    }
}

fn tree(workspace: &Workspace, patches_can_be_read: bool) -> Finding {
    let id = "tree";
    match patchset::state::status(workspace, QUIET) {
        Ok((state, status)) => match status.state {
            "applied" => Finding::ok(id, format!("vendor/mlx: {state}")),
            "tampered" => Finding::error(
                id,
                format!("vendor/mlx: {state}"),
                "`cargo xtask apply-overlay --discard-edits` removes the edits and keeps the edited files in \
                 vendor/mlx-edits-<n>/; docs/guide/write-a-patch.md shows how to turn them into a patch",
            ),
            _ => Finding::warning(
                id,
                format!("vendor/mlx: {state}"),
                "cargo xtask apply-overlay",
            ),
        },
        Err(error) if !patches_can_be_read => Finding::error(id, error.to_string(), PATCHES),
        // The path is not a folder, or cannot be read.
        Err(error) if fs_err::symlink_metadata(workspace.tree()).is_ok() => Finding::error(
            id,
            error.to_string(),
            "mv vendor/mlx vendor/mlx-moved && cargo xtask apply-overlay",
        ),
        Err(error) => Finding::error(id, described(&error), "cargo xtask apply-overlay"),
    }
}
