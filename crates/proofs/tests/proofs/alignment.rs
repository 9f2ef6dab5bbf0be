//! The streamed kernels load four values of x at once. If rows do not start at a multiple of four values, the dispatch
//! copies them first.

use anyhow::{Context, Result, ensure};
use dispatch_plan::{Dtype, Policy};
use metal_sim::Device;
use proofs::{Case, Driver, How, Kind, Prefix};

pub(crate) fn kept() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    let how = How {
        device: Device::new(),
        policy: Policy::EXACT,
        metallib: None,
    };
    let mut cases = Vec::new();
    for dtype in [Dtype::Float32, Dtype::Bfloat16] {
        for batch in [1, 2] {
            for offset in [1, 2, 4] {
                let case = Case::new(4, 64, Kind::Fast, [3]).context("no such K")?;
                cases.push(Case {
                    dtype,
                    batch,
                    offset,
                    ..case
                });
            }
        }
    }
    for (case, answer) in cases.iter().zip(driver.run(&how, &cases)?) {
        let together = answer.together.first().context("no answer")?;
        ensure!(
            together.differing == 0,
            "{case}: {} outputs differ",
            together.differing
        );
        let copied = together.kernels.keys().any(|name| name.contains("copy"));
        ensure!(
            copied == (case.offset % 4 != 0),
            "{case}: {:?}",
            together.kernels
        );
    }
    Ok(())
}
