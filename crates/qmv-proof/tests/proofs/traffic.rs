//! Bytes of weights, scales and biases that a dispatch loads, counted by the metered device.

use anyhow::{Context, Result, ensure};
use metal_sim::Device;
use qmv_plan::{Path, Policy};
use qmv_proof::{Case, Driver, How, Kind, Prefix, Record};

pub(crate) fn counted() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    let architecture = "applegpu_g15d".parse()?;
    let mut met = Vec::new();
    for policy in [Policy::Default, Policy::Narrow, Policy::Streamed] {
        for (bits, kind) in [(4, Kind::Fast), (4, Kind::Tail), (6, Kind::Fast)] {
            let case = Case::new(bits, 64, kind, [1, 3, 8, 9, 11]).context("no such K")?;
            let case = Case {
                record: Record::Dispatches,
                ..case
            };
            let how = How {
                device: Device::new()
                    .architecture("applegpu_g15d".parse().map_err(anyhow::Error::msg)?)
                    .meter(true),
                policy,
                metallib: None,
            };
            let answers = driver.run(&how, std::slice::from_ref(&case))?;
            for together in &answers.first().context("no answer")?.together {
                let plan = case.plan(architecture, policy, together.m)?;
                let [dispatch] = &together.dispatches[..] else {
                    anyhow::bail!(
                        "{} dispatches for {}",
                        together.dispatches.len(),
                        plan.kernel
                    );
                };
                let loaded = |name: &str| {
                    dispatch
                        .argument(name)
                        .and_then(|argument| argument.loaded)
                        .with_context(|| format!("nothing counted for {name} of {}", plan.kernel))
                };
                let passes = u64::from(plan.weight_passes);
                let weights = u64::from(case.n * case.k);
                let what = format!("{} at M = {}", plan.kernel, together.m);
                // Each byte of the weights is one lane's, so it is loaded once a pass.
                let packed = passes * weights * u64::from(bits) / 8;
                ensure!(
                    loaded("w")? == packed,
                    "{what}: {} bytes of w loaded, {packed} planned",
                    loaded("w")?
                );
                // A scale and a bias belong to all lanes that share the group; each loads its own
                // copy, which a GPU serves with one read.
                let lanes = u64::from(lanes_a_group(&case, plan.path));
                let scales = passes * weights / u64::from(case.group) * 4 * lanes;
                for name in ["scales", "biases"] {
                    ensure!(
                        loaded(name)? == scales,
                        "{what}: {} bytes of {name} loaded, {scales} planned for {lanes} lanes",
                        loaded(name)?
                    );
                }
                met.push(plan.path);
            }
        }
    }
    for path in [Path::Qmv, Path::Wide, Path::Streamed] {
        ensure!(met.contains(&path), "{path} was not met");
    }
    Ok(())
}

/// Lanes that load the scale of one group: as many as its values fill, by the kernels' text.
fn lanes_a_group(case: &Case, path: Path) -> u32 {
    let pack = if case.bits == 6 { 4 } else { 8 };
    let packs = if case.kind == Kind::Fast { 2 } else { 1 };
    match path {
        Path::Wide => 1,
        _ => case.group / (pack * packs),
    }
}
