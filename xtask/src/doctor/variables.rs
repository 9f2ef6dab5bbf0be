//! What variables name that programs look for when they run.

use std::os::unix::fs::PermissionsExt;

use metal_sim::Architecture;

use super::finding::Finding;
use crate::host::{Host, Os};

/// Why a value is of no use; `None` where nothing is amiss.
type Check = fn(&str) -> Option<String>;

pub(super) fn examine(host: &Host) -> Finding {
    const ALL: [(&str, Check); 1] = [("MLX_OVERLAY_METALLIB", file)];
    const SIMULATED: [(&str, Check); 2] = [
        ("MTL_SIM_COMPILER", program),
        ("MTL_SIM_ARCH", architecture),
    ];
    let simulated = SIMULATED.iter().filter(|_| host.os == Os::Linux);
    let (found, names): (Vec<_>, Vec<_>) = ALL
        .iter()
        .chain(simulated)
        .filter_map(|(name, check)| {
            let why = check(host.var(name)?)?;
            Some((format!("{name}: {why}"), *name))
        })
        .unzip();
    if found.is_empty() {
        return Finding::ok("variables", "none names what is not there");
    }
    let remedy = format!("unset {}", names.join(" "));
    Finding::error("variables", found.join("; "), remedy)
}

fn file(path: &str) -> Option<String> {
    let there = fs_err::metadata(path).is_ok_and(|metadata| metadata.is_file());
    (!there).then(|| format!("{path} is not there, and programs look nowhere else"))
}

fn program(path: &str) -> Option<String> {
    let runs = fs_err::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0);
    (!runs).then(|| format!("{path} is no program, and kernels are compiled by no other"))
}

fn architecture(name: &str) -> Option<String> {
    name.parse::<Architecture>()
        .err()
        .map(|error| error.to_string())
}
