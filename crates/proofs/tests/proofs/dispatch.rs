//! Kernels do not depend on the architecture; the dispatch does.

use anyhow::{Context, Result, bail, ensure};
use dispatch_plan::{Mode, Path, Policy};
use metal_sim::Device;
use metal_sim::trace::Dispatch;
use proofs::{Case, Driver, FloatFormat, How, Kind, Prefix, Record, products};

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
        for policy in Policy::KINDS.iter().copied().chain([Policy::EXACT.all()]) {
            // 33 rows are above the batch limit of every architecture, 17 are more than a block.
            let rows = || (1..=13).chain([16, 17, 33, 40]);
            let affine = Case::new(4, 64, Kind::Fast, rows());
            let fp = FloatFormat::ALL
                .into_iter()
                .filter_map(|format| format.case(Kind::Fast, rows()));
            let mut cases: Vec<_> = affine.into_iter().chain(fp).collect();
            for case in &mut cases {
                case.record = Record::Dispatches;
            }
            let how = How {
                device: Device::new().architecture(name.parse()?),
                policy,
                metallib: None,
            };
            for (case, answer) in cases.iter().zip(driver.run(&how, &cases)?) {
                for together in &answer.together {
                    let plan = case.plan(architecture, policy, together.m)?;
                    let planned = |dispatch: &&Dispatch| dispatch.kernel == plan.kernel;
                    let ran: Vec<_> = together.dispatches.iter().filter(planned).collect();
                    let [dispatch] = ran[..] else {
                        bail!(
                            "{name}, {policy}, M = {}: {} planned, {:?} ran",
                            together.m,
                            plan.kernel,
                            together.kernels
                        );
                    };
                    // If K is split, another kernel adds up the parts.
                    ensure!(
                        plan.path == Path::Matrix || products(&together.kernels).len() == 1,
                        "{name}, {policy}, M = {}: {:?} ran",
                        together.m,
                        together.kernels
                    );
                    ensure!(
                        (dispatch.grid, dispatch.group)
                            == (plan.grid.map(u64::from), plan.group.map(u64::from)),
                        "{name}, {policy}, M = {}, {}: {:?} of {:?} threads planned, {:?} of {:?} ran",
                        together.m,
                        plan.kernel,
                        plan.grid,
                        plan.group,
                        dispatch.grid,
                        dispatch.group
                    );
                    // A matrix kernel may give the same bits by chance.
                    ensure!(
                        (together.differing == 0) == plan.identical || plan.path == Path::Matrix,
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

/// Some GPUs of generation 17 compute one row of nvfp4 with fewer output rows per simdgroup, from 4096 outputs on. That
/// changes no bit, so the streamed kernel has the same bits as both.
pub(crate) fn narrow_kernel() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    for format in FloatFormat::ALL
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
                device: Device::new().architecture(name.parse()?),
                policy: Policy::EXACT,
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
