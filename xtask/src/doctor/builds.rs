//! What was built: prefixes of another tree or place, and kernels that do not belong.

use std::io::{BufRead, BufReader};

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use metallib::{Library, TargetOs};
use overlay::Workspace;
use overlay::lock::Lock;

use super::Finding;
use crate::build::backend::metal;
use crate::build::stamp::{self, Stamp};
use crate::build::{Backend, prefix};
use crate::host::{Host, Os};

/// First bytes of a library of kernels, by back-end.
const APPLE_MAGIC: &[u8] = b"MTLB";
const SIM_MAGIC: &[u8] = b"mtlsim-metallib";

/// A part of the names of the overlay's own kernels.
const OWN_KERNEL: &str = "qmv_streamed";

pub(super) fn examine(host: &Host, root: &Utf8Path) -> Vec<Finding> {
    let mut findings = vec![build_folders(root)];
    let folder = match host.var("MLX_OVERLAY_PREFIX") {
        Some(named) => Utf8PathBuf::from(named),
        None => prefix::builds_dir(root).join("current"),
    };
    let (finding, stamp) = linked_prefix(host, root, &folder);
    findings.push(finding);
    if let Some(stamp) = stamp {
        findings.extend(tools_changed(host, &stamp));
        findings.extend(kernels(host, root, &folder, &stamp));
    }
    findings
}

/// The prefix that `cargo build` links.
fn linked_prefix(host: &Host, root: &Utf8Path, folder: &Utf8Path) -> (Finding, Option<Stamp>) {
    let id = "prefix";
    let named = host.var("MLX_OVERLAY_PREFIX").is_some();
    let build = "cargo xtask build";
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
        } else if folder.is_symlink() {
            let found = format!("{folder} leads nowhere: that build was removed");
            Finding::warning(id, found, build)
        } else {
            Finding::warning(id, "MLX is not built yet", build)
        };
        return (finding, None);
    }
    let Some(stamp) = Stamp::read(folder) else {
        let found = format!(
            "{} is of another version of this program",
            folder.join(stamp::FILE_NAME)
        );
        return (Finding::error(id, found, build), None);
    };
    let lock = Lock::load(&Workspace::at(root).lock_path()).ok().flatten();
    let finding = match lock.map(|lock| lock.final_tree.to_string()) {
        Some(wanted) if stamp.final_tree != wanted && !stamp.pristine => Finding::error(
            id,
            format!(
                "{folder} was built from tree {}, mlx.lock says {wanted}",
                stamp.final_tree
            ),
            format!("cargo xtask apply-overlay && {build}"),
        ),
        _ => Finding::ok(
            id,
            format!(
                "{folder}: MLX {}, {} back-end",
                stamp.version, stamp.backend
            ),
        ),
    };
    let runtime = stamp.clang_rt.as_deref().map(Utf8Path::new);
    if let Some(runtime) = runtime.filter(|file| !file.is_file()) {
        let found = format!("{folder} was built with {runtime}, which is gone");
        return (Finding::error(id, found, build), Some(stamp));
    }
    (finding, Some(stamp))
}

/// A compiler that was updated makes another build folder; the prefix that is linked stays the old one until then.
fn tools_changed(host: &Host, stamp: &Stamp) -> Option<Finding> {
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
        Err(error) => Finding::error("metallib", format!("{error:#}"), "cargo xtask build"),
    }];
    findings.push(shadows(root, &file));
    findings
}

fn library(host: &Host, file: &Utf8Path, stamp: &Stamp) -> Result<Finding> {
    let id = "metallib";
    let bytes = fs_err::read(file)?;
    let (names, built_for) = if bytes.starts_with(APPLE_MAGIC) {
        apple_library(&bytes).with_context(|| format!("{file} cannot be read"))?
    } else if bytes.starts_with(SIM_MAGIC) {
        (sim_names(&bytes)?, None)
    } else {
        anyhow::bail!("{file} is no library of kernels");
    };
    let simulated = bytes.starts_with(SIM_MAGIC);
    if simulated != (stamp.backend == Backend::Sim) {
        let found = format!(
            "{file} is not for the {} back-end, which the prefix is for",
            stamp.backend
        );
        return Ok(Finding::error(id, found, "cargo xtask build"));
    }
    if !stamp.pristine && !stamp.jit && !names.iter().any(|name| name.contains(OWN_KERNEL)) {
        let found =
            format!("{file} has none of the overlay's kernels ({OWN_KERNEL}): it is another MLX's");
        return Ok(Finding::error(id, found, "cargo xtask build"));
    }
    if let (Some(built_for), Os::MacOs) = (built_for, host.os) {
        let (major, minor) = built_for;
        if super::apple::system(host).is_some_and(|running| running < built_for) {
            let found = format!(
                "{file} is for macOS {major}.{minor} or newer: MLX cannot load it on this system"
            );
            let remedy = "unset MACOSX_DEPLOYMENT_TARGET and run `cargo xtask build`";
            return Ok(Finding::error(id, found, remedy));
        }
        let target = metal::deployment_target(host).and_then(|text| metal::version(&text));
        if target.is_ok_and(|target| target < built_for) {
            let found = format!(
                "programs are built for an older macOS than {file}, which is for {major}.{minor}: there they start, and \
                 fail when they use the GPU"
            );
            let remedy = "run `cargo xtask build` with the MACOSX_DEPLOYMENT_TARGET that programs are built with";
            return Ok(Finding::warning(id, found, remedy));
        }
    }
    Ok(Finding::ok(id, format!("{file}: {} kernels", names.len())))
}

/// Names of a library's functions, and the oldest macOS that loads it.
type Kernels = (Vec<String>, Option<(u32, u32)>);

fn apple_library(bytes: &[u8]) -> Result<Kernels> {
    let library = Library::parse(bytes)?;
    let names = library
        .functions()
        .map(|function| Ok(function?.name.to_owned()))
        .collect::<Result<_>>()?;
    let header = library.header();
    let version = (
        header.os_version.major.into(),
        header.os_version.minor.into(),
    );
    Ok((names, (header.os == TargetOs::MacOs).then_some(version)))
}

/// The names that stand after the second line, `names <count> …`, one a line.
fn sim_names(bytes: &[u8]) -> Result<Vec<String>> {
    let mut lines = BufReader::new(bytes).lines();
    let count = lines
        .nth(1)
        .transpose()?
        .and_then(|line| line.strip_prefix("names ")?.split(' ').next()?.parse().ok())
        .context("the library has no table of names")?;
    lines.take(count).map(|line| Ok(line?)).collect()
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
