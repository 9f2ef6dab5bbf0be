//! Variables that name files which programs read when they run.

use std::os::unix::fs::PermissionsExt;

use camino::Utf8Path;
use metal_sim::Architecture;

use super::builds::METALLIB_VARIABLE;
use super::finding::Finding;
use crate::host::{Host, Os};
use crate::kernels::File;

/// Why a value is of no use; `None` if it is fine.
type Check = fn(&Host, &str) -> Option<String>;

pub(super) fn examine(host: &Host) -> Finding {
    const ALL: [(&str, Check); 3] = [
        (METALLIB_VARIABLE, kernels),
        ("CMAKE_TOOLCHAIN_FILE", file),
        ("CCACHE_PREFIX", launcher),
    ];
    const SIMULATED: [(&str, Check); 2] = [
        ("MTL_SIM_COMPILER", program),
        ("MTL_SIM_ARCH", architecture),
    ];
    let simulated = SIMULATED.iter().filter(|_| host.os == Os::Linux);
    let launchers = host
        .names()
        .filter(|name| name.starts_with("CMAKE_") && name.ends_with("_LAUNCHER"));
    let launchers = launchers.map(|name| (name, launcher as Check));
    let (found, names): (Vec<_>, Vec<_>) = ALL
        .iter()
        .chain(simulated)
        .copied()
        .chain(launchers)
        .filter_map(|(name, check)| {
            let why = check(host, host.var(name)?)?;
            Some((format!("{name}: {why}"), name))
        })
        .unzip();
    if found.is_empty() {
        return Finding::ok("variables", "every variable names something that exists");
    }
    let remedy = format!("unset {}", names.join(" "));
    Finding::error("variables", found.join("; "), remedy)
}

/// Programs load these kernels and no others.
fn kernels(host: &Host, path: &str) -> Option<String> {
    // Reading a pipe would block.
    if let Some(why) = file(host, path) {
        return Some(why);
    }
    let error = File::read(Utf8Path::new(path)).err()?;
    Some(format!("{error:#}; programs search nowhere else"))
}

fn file(_: &Host, path: &str) -> Option<String> {
    let there = fs_err::metadata(path).is_ok_and(|metadata| metadata.is_file());
    (!there).then(|| format!("{path} is not an existing file"))
}

/// A program with its arguments, as CMake and ccache accept it.
fn launcher(host: &Host, line: &str) -> Option<String> {
    let program = line.split([';', ' ']).next().unwrap_or(line);
    let missing = host.find(program).is_none();
    missing.then(|| format!("{program} is not a program, so nothing can be compiled"))
}

fn program(_: &Host, path: &str) -> Option<String> {
    let runs = fs_err::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0);
    (!runs).then(|| format!("{path} is not a program, and kernels cannot be compiled without one"))
}

fn architecture(_: &Host, name: &str) -> Option<String> {
    name.parse::<Architecture>()
        .err()
        .map(|error| error.to_string())
}
