//! Kernels do not know the architecture; the dispatch does.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use metal_sim::Device;
use qmv_plan::{Path, Policy};
use qmv_proof::{Case, Driver, How, Kind, Prefix};

pub(crate) fn as_planned() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    for name in [
        "applegpu_g13s",
        "applegpu_g13d",
        "applegpu_g15s",
        "applegpu_g15d",
        "applegpu_g17s",
    ] {
        let architecture = name.parse()?;
        for policy in [Policy::Default, Policy::Narrow, Policy::Streamed] {
            let mut case = Case::new(4, 64, Kind::Fast, 1..=13).context("no such K")?;
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
            let how = How {
                device: Device::new().architecture(name.parse().map_err(anyhow::Error::msg)?),
                policy,
                metallib: None,
            };
            let answers = driver.run(&how, std::slice::from_ref(&case))?;
            for together in &answers.first().context("no answer")?.together {
                let plan = case.plan(architecture, policy, together.m)?;
                ensure!(
                    together.kernels == BTreeMap::from([(plan.kernel.clone(), 1)]),
                    "{name}, {policy}, M = {}: {} planned, {:?} ran",
                    together.m,
                    plan.kernel,
                    together.kernels
                );
                ensure!(
                    (together.differing == 0) == plan.identical,
                    "{name}, {policy}, M = {}: {} outputs differ, planned to be identical: {}",
                    together.m,
                    together.differing,
                    plan.identical
                );
            }
        }
    }
    Ok(())
}
