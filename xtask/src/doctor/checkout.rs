//! The checkout: its sources, its disk, its way to the network, and what the environment says about it.

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

use super::finding::{Finding, Status};
use crate::host::Host;
use crate::requirements;
use crate::status::waiting;

/// MiB that a build takes, with its prefix and the tests that link it; and what it should find.
const DISK_NEEDED: u64 = 1024;
const DISK_WISHED: u64 = 4096;

pub(super) fn examine(host: &Host, root: &Utf8Path) -> Vec<Finding> {
    let workspace = Workspace::at(root);
    let mut findings = vec![
        super::tools::required(host, "git", requirements::git(host)),
        super::git::settings(host, &workspace),
        disk(host, &workspace),
        target(&workspace),
        policy(host),
    ];
    // A run that changes the project may take long, and what it has not finished is no fault.
    if let Ok(Some(run)) = patchset::project::changed_by(&workspace) {
        let found = format!("the project is being changed by {run}");
        let remedy = "wait until it ends, or end it; then run this again";
        findings.push(Finding::warning("lock-held", found, remedy));
        return findings;
    }
    // A change that a killed run decided is finished first; what keeps it from that, the tree's check tells.
    drop(patchset::project::hold(&workspace, QUIET));
    let Parts {
        manifest,
        series,
        lock,
    } = Parts::read(&workspace);
    let manifest = match manifest {
        Ok(manifest) => manifest,
        Err(error) => {
            let remedy = "restore mlx.toml: `git checkout mlx.toml`";
            findings.push(Finding::error("pin", error.to_string(), remedy));
            return findings;
        }
    };
    let broken = match (&lock, &series) {
        (Err(error), _) => Some(error.to_string()),
        (Ok(None), _) => Some("mlx.lock is missing".to_owned()),
        // What is wrong with the patches is not the lock's fault.
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
        // Whether the tree is the right one, only a sound lock can say.
        Some(message) => Finding::error(
            "lock",
            message,
            "`git checkout mlx.lock`; then, where mlx.toml or the patches were changed on purpose, \
             `cargo xtask apply-overlay --update-lock`",
        ),
        None => tree(&workspace, series.is_ok()),
    });
    findings
}

/// A bump that waits for a person; nothing if none does.
fn bump(workspace: &Workspace) -> Option<Finding> {
    let id = "bump";
    let abort = "`cargo xtask bump-pin --abort`";
    match patchset::bump::waiting(workspace) {
        Ok(None) => None,
        Ok(Some(bump)) => {
            let remedy = match bump.stale {
                true => format!("{abort}, and begin anew"),
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
    let folder = nearest(&workspace.root().join(BUILDS), Utf8Path::exists);
    // -P: one line a file system, whatever its name's length.
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
        "free some, {root}/target/mlx and {root}/target are made again; CARGO_TARGET_DIR can lie elsewhere"
    );
    match free.map(|kib| kib / 1024) {
        None => Finding::warning(
            id,
            "`df -Pk` does not tell how much is free",
            "look yourself: a build takes 1 GB",
        ),
        Some(mib) if mib < DISK_NEEDED => Finding::error(
            id,
            format!("{mib} MiB free, a build takes about {DISK_NEEDED}"),
            remedy,
        ),
        Some(mib) if mib < DISK_WISHED => Finding::warning(
            id,
            format!("{mib} MiB free, a build with all tests takes about {DISK_WISHED}"),
            remedy,
        ),
        Some(mib) => Finding::ok(id, format!("{mib} MiB free")),
    }
}

/// Whether builds and downloads can be written.
fn target(workspace: &Workspace) -> Finding {
    let id = "target";
    for folder in [workspace.root().join(BUILDS), workspace.cache()] {
        // A link that leads nowhere is in the way too.
        let folder = nearest(&folder, |path| fs_err::symlink_metadata(path).is_ok());
        // A file without a name: nothing is left, nothing is seen.
        if let Err(error) = tempfile::tempfile_in(&folder) {
            let why = if folder.exists() {
                error.kind().to_string()
            } else {
                "it leads nowhere".to_owned()
            };
            let found = format!("{folder} cannot be written: {why}");
            return Finding::error(id, found, make_writable(&folder, error.kind()));
        }
    }
    Finding::ok(id, "target/mlx and target/overlay can be written")
}

fn make_writable(folder: &Utf8Path, error: io::ErrorKind) -> String {
    match error {
        io::ErrorKind::PermissionDenied => {
            format!("sudo chown -R \"$(id -un)\" {folder} && chmod -R u+rwX {folder}")
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("have the file system of {folder} mounted for writing, or move the checkout")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::NotFound => {
            format!("rm {folder}; a folder is made in its place")
        }
        _ => format!("`ls -ld {folder}` and `df {folder}` may tell more"),
    }
}

/// The folder, or the closest one above it that is there.
fn nearest(folder: &Utf8Path, there: impl Fn(&Utf8Path) -> bool) -> Utf8PathBuf {
    let mut places = folder.ancestors();
    places.find(|path| there(path)).unwrap_or(folder).to_owned()
}

fn policy(host: &Host) -> Finding {
    if let Some(value) = host.var("MLX_QMV_POLICY") {
        return Finding::error(
            "policy",
            format!("MLX_QMV_POLICY={value} is no longer read: operations on a GPU will fail"),
            "unset it and set MLX_ROW_POLICY, where streamed is now exact and the former exact is exact:all",
        );
    }
    match host.var("MLX_ROW_POLICY") {
        None => Finding::ok("policy", "MLX_ROW_POLICY is not set: MLX's own choice"),
        Some(value) => match value.parse::<Policy>() {
            Ok(policy) => Finding::ok(
                "policy",
                format!("MLX_ROW_POLICY={policy}, for every program"),
            ),
            Err(error) => Finding::error(
                "policy",
                format!("MLX_ROW_POLICY={value}: operations on a GPU will fail: {error}"),
                "set a policy, or unset it",
            ),
        },
    }
}

/// Whether MLX and its inputs are here; if not, whether they can be had.
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
            "MLX {} is here, from {}; no network is needed for it",
            manifest.mlx.title(),
            source.trim()
        );
        return vec![Finding::ok(id, found)];
    }
    let offline = host.var("CARGO_NET_OFFLINE") == Some("true");
    let version = &manifest.mlx.title();
    let mut findings = vec![if offline {
        let found = format!(
            "MLX {version} is not fetched yet; with CARGO_NET_OFFLINE=true a network is not asked"
        );
        let remedy = "docs/offline.md tells the ways without a network; `cargo xtask fetch` with CARGO_NET_OFFLINE unset";
        Finding::warning(id, found, remedy)
    } else {
        Finding::warning(
            id,
            format!("MLX {version} is not fetched yet"),
            "cargo xtask fetch (docs/offline.md tells the ways without a network)",
        )
    }];
    for source in &manifest.mlx.sources {
        // Cargo keeps to the variable itself, and answers from what it has.
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
                // A dead connection must not hang the doctor.
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
        // Whoever serves it is asked when it is fetched.
        Source::Archive(_) => None,
    }
}

/// Outside every workspace, so that cargo reads the user's settings and no manifest.
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
            // Cargo tells its causes on lines of their own.
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
                "`cargo xtask apply-overlay --discard-edits` takes the edits out and keeps the edited files in \
                 vendor/mlx-edits-<n>/; docs/write-a-patch.md tells how they become a patch",
            ),
            _ => Finding::warning(
                id,
                format!("vendor/mlx: {state}"),
                "cargo xtask apply-overlay",
            ),
        },
        Err(error) if !patches_can_be_read => Finding::error(
            id,
            error.to_string(),
            "`git checkout patches`, or mend what was changed on purpose (docs/write-a-patch.md)",
        ),
        Err(error) => Finding::error(
            id,
            error.to_string(),
            "move vendor/mlx away, then `cargo xtask apply-overlay`",
        ),
    }
}
