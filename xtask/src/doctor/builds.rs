//! What was built: prefixes of another tree or place, and kernels that do not belong.

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};
use metallib::TargetOs;
use patchset::lock::Lock;

use super::Finding;
use crate::build::backend::metal;
use crate::build::stamp::{self, Stamp};
use crate::build::{Backend, prefix};
use crate::host::{Host, Os};
use crate::kernels::File;
use crate::sums::{self, Fault};

/// What makes a build anew.
const BUILD: &str = "cargo xtask build";

/// `lock` is what builds are held against, if it can be trusted.
pub(super) fn examine(host: &Host, root: &Utf8Path, lock: Option<&Lock>) -> Vec<Finding> {
    let mut findings = vec![build_folders(root)];
    let folder = match host.var("MLX_OVERLAY_PREFIX") {
        Some(named) => Utf8PathBuf::from(named),
        None => prefix::builds_dir(root).join("current"),
    };
    let (finding, stamp) = linked_prefix(host, lock, &folder);
    findings.push(finding);
    if let Some(stamp) = stamp {
        findings.extend(tools_changed(host, &stamp));
        findings.extend(kernels(host, root, &folder, &stamp));
    }
    findings
}

/// The prefix that `cargo build` links.
fn linked_prefix(host: &Host, lock: Option<&Lock>, folder: &Utf8Path) -> (Finding, Option<Stamp>) {
    let id = "prefix";
    let named = host.var("MLX_OVERLAY_PREFIX").is_some();
    if !folder.join(stamp::FILE_NAME).is_file() {
        let finding = if named {
            let found = format!(
                "MLX_OVERLAY_PREFIX names {folder}, which has no {}",
                stamp::FILE_NAME
            );
            Finding::error(
                id,
                found,
                "name a folder that `cargo xtask build` or `bundle` made, or unset the variable",
            )
        } else if folder.exists() {
            let found = format!(
                "{folder} has no {}: the build in it is incomplete",
                stamp::FILE_NAME
            );
            Finding::warning(id, found, BUILD)
        } else if folder.is_symlink() {
            let found = format!("{folder} leads nowhere: that build was removed");
            Finding::warning(id, found, BUILD)
        } else {
            Finding::warning(id, "MLX is not built yet", BUILD)
        };
        return (finding, None);
    }
    let Some(stamp) = Stamp::read(folder) else {
        let found = format!(
            "{} is of another version of this program",
            folder.join(stamp::FILE_NAME)
        );
        return (Finding::error(id, found, BUILD), None);
    };
    let finding = match lock.map(|lock| lock.final_tree.to_string()) {
        Some(wanted) if stamp.final_tree != wanted && !stamp.pristine => Finding::error(
            id,
            format!(
                "{folder} was built from tree {}, mlx.lock says {wanted}",
                stamp.final_tree
            ),
            format!("cargo xtask apply-overlay && {BUILD}"),
        ),
        _ => content(host, folder, &stamp),
    };
    let runtime = stamp.clang_rt.as_deref().map(Utf8Path::new);
    if let Some(runtime) = runtime.filter(|file| !file.is_file()) {
        let found = format!("{folder} was built with {runtime}, which is gone");
        return (Finding::error(id, found, BUILD), Some(stamp));
    }
    (finding, Some(stamp))
}

/// Whether the prefix, or the bundle that takes its place, has the files that it was made with.
fn content(host: &Host, folder: &Utf8Path, stamp: &Stamp) -> Finding {
    let id = "prefix";
    let mut remedy = stamp.command(host);
    if host.var("MLX_OVERLAY_PREFIX").is_some() {
        remedy += "; where MLX_OVERLAY_PREFIX names a bundle: unpack or make it again";
    }
    match sums::check(folder) {
        Ok(None) => {
            let (version, backend) = (&stamp.version, stamp.backend);
            Finding::ok(id, format!("{folder}: MLX {version}, {backend} back-end"))
        }
        // What is built and linked is there.
        Ok(Some(fault @ Fault::Added(_))) => {
            let remedy = "move it away: the next build leaves nothing there that it did not bring";
            Finding::warning(id, format!("{folder}: {fault}"), remedy)
        }
        Ok(Some(fault)) => Finding::error(id, format!("{folder}: {fault}"), remedy),
        Err(error) => Finding::error(id, format!("{error:#}"), remedy),
    }
}

/// A compiler that was updated makes another build folder; the prefix that is linked stays the old one until then.
fn tools_changed(host: &Host, stamp: &Stamp) -> Option<Finding> {
    if crate::requirements::conda_compiler(host).is_some() {
        // It is told on its own, and without it the compiler may be the old one.
        return None;
    }
    let now = crate::requirements::cxx_compiler(host).ok()?.to_string();
    let then = stamp.tools.get("c++")?;
    (now != *then).then(|| {
        Finding::warning(
            "toolchain",
            format!("MLX was built with {then}, the compiler is now {now}"),
            "cargo xtask build, into a folder of its own; then remove the old one below target/mlx",
        )
    })
}

/// Build folders that were moved with the checkout: CMake starts them anew, or fails.
fn build_folders(root: &Utf8Path) -> Finding {
    let id = "builds";
    let dir = prefix::builds_dir(root);
    let mut count = 0;
    let mut moved = Vec::new();
    for entry in fs_err::read_dir(&dir).into_iter().flatten().flatten() {
        let Ok(folder) = Utf8PathBuf::try_from(entry.path()) else {
            continue;
        };
        let Ok(cache) = fs_err::read_to_string(folder.join("build/CMakeCache.txt")) else {
            continue;
        };
        count += 1;
        let made_in = cache
            .lines()
            .find_map(|line| line.strip_prefix("CMAKE_CACHEFILE_DIR:INTERNAL="));
        let here = folder.join("build").canonicalize_utf8();
        if made_in.is_some_and(|made_in| here.is_ok_and(|here| here != made_in))
            && !folder.is_symlink()
        {
            moved.push(folder);
        }
    }
    match moved.first() {
        None => Finding::ok(id, format!("{count} build folders in {dir}")),
        Some(first) => Finding::error(
            id,
            format!(
                "{first} was made at another place, and CMake does not follow: the checkout was moved or copied"
            ),
            format!(
                "rm -r {} && cargo xtask build",
                moved
                    .iter()
                    .map(|path| path.as_str())
                    .collect::<Vec<_>>()
                    .join(" ")
            ),
        ),
    }
}

/// The kernels that a program of this checkout would load.
fn kernels(host: &Host, root: &Utf8Path, folder: &Utf8Path, stamp: &Stamp) -> Vec<Finding> {
    let Some(relative) = &stamp.metallib else {
        return Vec::new();
    };
    let file = folder.join(relative);
    let mut findings = vec![match library(host, &file, stamp) {
        Ok(finding) => finding,
        Err(error) => Finding::error("metallib", format!("{error:#}"), BUILD),
    }];
    findings.push(shadows(root, &file));
    findings
}

fn library(host: &Host, path: &Utf8Path, stamp: &Stamp) -> Result<Finding> {
    let id = "metallib";
    let file = File::read(path)?;
    if file.container.is_none() != (stamp.backend == Backend::Sim) {
        let found = format!(
            "{path} is not for the {} back-end, which the prefix is for",
            stamp.backend
        );
        return Ok(Finding::error(id, found, BUILD));
    }
    if !stamp.pristine && file.tree() != Some(&stamp.final_tree) {
        let found = match file.tree() {
            Some(tree) => format!(
                "{path} is of tree {tree}, its prefix of {}",
                stamp.final_tree
            ),
            None => format!("{path} does not have the overlay's kernels: it is another MLX's"),
        };
        return Ok(Finding::error(id, found, BUILD));
    }
    let Some(container) = &file.container else {
        return Ok(whole(&file));
    };
    if let Some(first) = container.damaged.first() {
        let found =
            format!("{path} is damaged: the code of {first} does not have the sum stored with it");
        return Ok(Finding::error(id, found, BUILD));
    }
    if container.os == TargetOs::MacOs && host.os == Os::MacOs {
        let built_for = container.minimum_os;
        if super::apple::system(host).is_some_and(|running| running < built_for) {
            let found = format!(
                "{path} is for macOS {built_for} or newer: MLX cannot load it on this system"
            );
            let remedy = "unset MACOSX_DEPLOYMENT_TARGET and run `cargo xtask build`";
            return Ok(Finding::error(id, found, remedy));
        }
        let target = metal::deployment_target(host).and_then(|text| metal::version(&text));
        if target.is_ok_and(|target| target < built_for) {
            let found = format!(
                "programs are built for an older macOS than {path}, which is for {built_for}: there they start, and \
                 fail when they use the GPU"
            );
            let remedy = "run `cargo xtask build` with the MACOSX_DEPLOYMENT_TARGET that programs are built with";
            return Ok(Finding::warning(id, found, remedy));
        }
    }
    Ok(whole(&file))
}

fn whole(file: &File) -> Finding {
    Finding::ok(
        "metallib",
        format!("{}: {} kernels", file.path, file.names.len()),
    )
}

/// Kernels beside the programs that cargo builds: they are looked for there first.
fn shadows(root: &Utf8Path, own: &Utf8Path) -> Finding {
    let id = "shadowing-kernels";
    for profile in ["debug", "release"] {
        for folder in ["", "deps", "examples"] {
            let file = root
                .join("target")
                .join(profile)
                .join(folder)
                .join("mlx.metallib");
            if file.is_file() && !same(&file, own).unwrap_or(false) {
                let found =
                    format!("{file} is not this build's, and programs beside it load it first");
                return Finding::error(id, found, format!("rm {file}"));
            }
        }
    }
    Finding::ok(id, "no other kernels beside the programs in target/")
}

fn same(a: &Utf8Path, b: &Utf8Path) -> Result<bool> {
    Ok(fs_err::metadata(a)?.len() == fs_err::metadata(b)?.len()
        && fs_err::read(a)? == fs_err::read(b)?)
}
