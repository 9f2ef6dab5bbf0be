//! Kernels do not know the architecture; the dispatch does.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use dispatch_plan::{Mode, Path, Policy};
use metal_sim::Device;
use proofs::{Case, Driver, Format, How, Kind, Prefix, products};

pub(crate) fn as_planned() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    for name in [
        "applegpu_g13s",
        "applegpu_g13d",
        "applegpu_g14s",
        "applegpu_g15s",
        "applegpu_g15d",
        "applegpu_g17s",
    ] {
        let architecture = name.parse()?;
        for policy in [Policy::Default, Policy::Narrow, Policy::Streamed] {
            let affine = Case::new(4, 64, Kind::Fast, 1..=13);
            let fp = Format::ALL
                .into_iter()
                .filter_map(|format| format.case(Kind::Fast, 1..=13));
            let mut cases: Vec<_> = affine.into_iter().chain(fp).collect();
            for case in &mut cases {
                // Matrix kernels are another proof's.
                let mut below = Vec::new();
                for &m in &case.rows {
                    if !matches!(
                        case.plan(architecture, policy, m)?.path,
                        Path::Qmm | Path::QmmSplitK
                    ) {
                        below.push(m);
                    }
                }
                case.rows = below;
            }
            let how = How {
                device: Device::new().architecture(name.parse().map_err(anyhow::Error::msg)?),
                policy,
                metallib: None,
            };
            for (case, answer) in cases.iter().zip(driver.run(&how, &cases)?) {
                for together in &answer.together {
                    let plan = case.plan(architecture, policy, together.m)?;
                    ensure!(
                        products(&together.kernels) == BTreeMap::from([(plan.kernel.as_str(), 1)]),
                        "{name}, {policy}, M = {}: {} planned, {:?} ran",
                        together.m,
                        plan.kernel,
                        together.kernels
                    );
                    ensure!(
                        (together.differing == 0) == plan.identical,
                        "{name}, {policy}, M = {}, {}: {} outputs differ, planned to be identical: {}",
                        together.m,
                        plan.kernel,
                        together.differing,
                        plan.identical
                    );
                }
            }
        }
    }
    Ok(())
}

/// Some GPUs of generation 17 compute one row of nvfp4 with fewer output rows a simdgroup, from 4096 outputs on. That
/// changes no bit, and so the streamed kernel has the bits of either.
pub(crate) fn narrow_kernel() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    for format in Format::ALL
        .into_iter()
        .filter(|format| format.mode == Mode::Nvfp4)
    {
        let case = format.case(Kind::Fast, [2]).context("no such K")?;
        let case = Case {
            n: 4096,
            k: 512,
            ..case
        };
        let mut one_row = Vec::new();
        for (name, rows) in [("applegpu_g17s", 2), ("applegpu_g17g", 4)] {
            let how = How {
                device: Device::new().architecture(name.parse().map_err(anyhow::Error::msg)?),
                policy: Policy::Streamed,
                metallib: None,
            };
            let mut answers = driver.run(&how, std::slice::from_ref(&case))?;
            let answer = answers.pop().context("no answer")?;
            let ending = format!("_r_{rows}");
            ensure!(
                products(&answer.alone.kernels)
                    .keys()
                    .all(|kernel| kernel.ends_with(&ending)),
                "{name}: {:?}, {ending} expected",
                answer.alone.kernels
            );
            for together in &answer.together {
                ensure!(
                    together.differing == 0,
                    "{name}, M = {}: {} outputs differ",
                    together.m,
                    together.differing
                );
            }
            one_row.push(answer.alone.bits);
        }
        ensure!(
            one_row[0] == one_row[1],
            "{format:?}: the narrow kernel has other bits"
        );
    }
    Ok(())
}
