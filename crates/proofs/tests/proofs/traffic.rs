//! Bytes of weights, scales and biases that a dispatch loads, counted by the metered device.

use anyhow::{Context, Result, ensure};
use dispatch_plan::{Mode, Path, Policy};
use metal_sim::Device;
use proofs::{Case, Driver, FloatFormat, How, Kind, Prefix, Record};

pub(crate) fn counted() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    let architecture = "applegpu_g15d".parse()?;
    let mut met = Vec::new();
    let rows = [1, 3, 8, 9, 11];
    let mut cases: Vec<_> = [(4, Kind::Fast), (4, Kind::Tail), (6, Kind::Fast)]
        .into_iter()
        .filter_map(|(bits, kind)| Case::new(bits, 64, kind, rows))
        .collect();
    for format in FloatFormat::ALL {
        cases.extend(format.case(Kind::Fast, rows));
        cases.extend(format.case(Kind::Tail, rows));
    }
    ensure!(cases.len() == 11, "a K is missing");
    for policy in Policy::KINDS.iter().copied() {
        for case in &cases {
            let case = Case {
                record: Record::Dispatches,
                ..case.clone()
            };
            let how = How {
                device: Device::new()
                    .architecture("applegpu_g15d".parse()?)
                    .meter(true),
                policy,
                metallib: None,
            };
            let answers = driver.run(&how, std::slice::from_ref(&case))?;
            for together in &answers.first().context("no answer")?.together {
                let plan = case.plan(architecture, policy, together.m)?;
                let rounds_x = |kernel: &str| kernel.contains("_quantize_dequantize_");
                let dispatches: Vec<_> = together
                    .dispatches
                    .iter()
                    .filter(|dispatch| !rounds_x(&dispatch.kernel))
                    .collect();
                let [dispatch] = dispatches[..] else {
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
                let packed = passes * weights * u64::from(case.bits) / 8;
                ensure!(
                    loaded("w")? == packed,
                    "{what}: {} bytes of w loaded, {packed} planned",
                    loaded("w")?
                );
                // A scale and a bias belong to all lanes that share the group; each loads its own
                // copy, which a GPU serves with one read.
                let lanes = u64::from(lanes_a_group(&case, plan.path));
                let (names, bytes): (&[&str], _) = match case.mode {
                    Mode::Affine => (&["scales", "biases"], 4),
                    _ => (&["scales"], 1),
                };
                let scales = passes * weights / u64::from(case.group) * bytes * lanes;
                for name in names {
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
    let pack = if case.bits == 4 { 8 } else { 4 };
    let packs = if case.kind == Kind::Fast { 2 } else { 1 };
    match path {
        Path::Wide => 1,
        _ => case.group / (pack * packs),
    }
}
