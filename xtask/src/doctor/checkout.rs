//! The checkout: its sources, its disk, its way to the network, and what the environment says about it.

use std::fmt::Display;

use camino::Utf8Path;
use overlay::manifest::Source;
use overlay::store::Store;
use overlay::{Manifest, Workspace};
use qmv_plan::Policy;

use super::Finding;
use crate::host::Host;

/// MiB that a build takes, with its prefix and the tests that link it; and what it should find.
const DISK_NEEDED: u64 = 1024;
const DISK_WISHED: u64 = 4096;

pub(super) fn examine(host: &Host, root: &Utf8Path) -> Vec<Finding> {
    let workspace = Workspace::at(root);
    let mut findings = vec![git(host), disk(host, root), policy(host)];
    match Manifest::load(&workspace.manifest_path()) {
        Ok(manifest) => {
            findings.extend(sources(host, &workspace, &manifest));
            findings.push(tree(&workspace));
        }
        Err(error) => findings.push(Finding::error(
            "pin",
            error.to_string(),
            "restore mlx.toml: `git checkout mlx.toml`",
        )),
    }
    findings
}

fn git(host: &Host) -> Finding {
    match host.cmd("git").arg("--version").read() {
        Ok(text) => Finding::ok("git", text),
        Err(error) => Finding::error(
            "git",
            error.to_string(),
            "install git: MLX is fetched with it, and cargo's git dependencies too",
        ),
    }
}

fn disk(host: &Host, root: &Utf8Path) -> Finding {
    let id = "disk";
    // -P: one line a file system, whatever its name's length.
    let free = host
        .cmd("df")
        .args(["-Pk", root.as_str()])
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

fn policy(host: &Host) -> Finding {
    match host.var("MLX_QMV_POLICY") {
        None => Finding::ok("policy", "MLX_QMV_POLICY is not set: MLX's own choice"),
        Some(value) if value.parse::<Policy>().is_ok() => Finding::ok(
            "policy",
            format!("MLX_QMV_POLICY={value}, for every program"),
        ),
        Some(value) => Finding::error(
            "policy",
            format!("MLX_QMV_POLICY={value}: every quantized product on a GPU will fail"),
            format!(
                "set one of {}, or unset it",
                Policy::ALL
                    .iter()
                    .map(|policy| policy.name())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        ),
    }
}

/// Whether MLX and its inputs are here; if not, whether they can be had.
fn sources(host: &Host, workspace: &Workspace, manifest: &Manifest) -> Vec<Finding> {
    let id = "sources";
    let here = Store::open_existing(workspace)
        .and_then(|store| {
            overlay::lock::Lock::load(&workspace.lock_path())
                .ok()?
                .map(|lock| (store, lock))
        })
        .and_then(|(store, lock)| store.source_of(lock.base_tree));
    if let Some(source) = here {
        let found = format!(
            "MLX {} is here, from {}; no network is needed for it",
            manifest.mlx.version,
            source.trim()
        );
        return vec![Finding::ok(id, found)];
    }
    let mut findings = vec![Finding::warning(
        id,
        format!("MLX {} is not fetched yet", manifest.mlx.version),
        "cargo xtask fetch (docs/offline.md tells the ways without a network)",
    )];
    for source in &manifest.mlx.sources {
        findings.extend(reach(host, manifest, source));
    }
    let failed = |finding: &Finding| finding.status != super::Status::Ok;
    // One source is enough.
    if findings[1..].iter().any(|finding| !failed(finding)) {
        for finding in &mut findings[1..] {
            if failed(finding) {
                finding.status = super::Status::Warning;
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
        _ => None,
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

fn tree(workspace: &Workspace) -> Finding {
    let id = "tree";
    match overlay::state::status(workspace, &|_| ()) {
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
        Err(error) => Finding::error(id, error.to_string(), "cargo xtask status tells more"),
    }
}
