//! `wide`: one row has the same bits as among others, the bits of MLX's own `qmv_wide`.

use anyhow::{Context, Result, ensure};
use dispatch_plan::{Dtype, Policy};
use metal_sim::Device;
use proofs::{Answer, Case, Driver, FloatFormat, How, Kind, Prefix, Record, products};

/// A device on which `default` takes `qmv_wide` for several rows of any mode, up to 32 of these sizes.
const TAKES_WIDE: &str = "applegpu_g15d";
/// A device on which it takes it only for the fp modes, and matrix kernels from 14 rows on.
const TAKES_QMV: &str = "applegpu_g13s";

pub(crate) fn one_order() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    let cases = cases();
    let answers = |name: &str, policy| -> Result<Vec<Answer>> {
        let how = How {
            device: Device::new().architecture(name.parse()?),
            policy,
            metallib: None,
        };
        driver.run(&how, &cases)
    };
    let upstream = answers(TAKES_WIDE, Policy::DEFAULT)?;
    for name in [TAKES_WIDE, TAKES_QMV] {
        let wide = answers(name, Policy::WIDE)?;
        let mut changed = 0;
        for ((case, ours), theirs) in cases.iter().zip(&wide).zip(&upstream) {
            // The row alone also takes the wide kernel, as the first of its tile.
            changed += u64::from(ours.alone.bits != theirs.alone.bits);
            only_wide(case, &ours.alone.kernels)?;
            for (ours, theirs) in ours.together.iter().zip(&theirs.together) {
                let what = format!("{name}: {case} at M = {}", ours.m);
                only_wide(case, &ours.kernels)?;
                only_wide(case, &theirs.kernels)?;
                ensure!(
                    ours.differing == 0,
                    "{what}: {} outputs are not those of M = 1",
                    ours.differing
                );
                ensure!(
                    ours.bits.is_some() && ours.bits == theirs.bits,
                    "{what}: other bits than qmv_wide under default"
                );
            }
        }
        // Otherwise the comparison with M = 1 would hold under any policy.
        let float32 = cases.iter().filter(|case| case.dtype == Dtype::Float32);
        ensure!(
            changed >= float32.count() as u64,
            "{name}: {changed} cases have other bits at M = 1 than under default"
        );
    }
    Ok(())
}

/// 2 to 16 rows in each type and kind of K.
fn cases() -> Vec<Case> {
    let rows = || 2..=Policy::BLOCK_ROWS;
    let mut cases = Vec::new();
    for kind in Kind::ALL {
        for &dtype in Dtype::ALL {
            let affine = Case::new(4, 64, kind, rows());
            // qmv_wide has no global scale.
            let formats = FloatFormat::ALL.into_iter();
            let fp = formats
                .filter(|format| !format.global_scale)
                .filter_map(|format| format.case(kind, rows()));
            cases.extend(affine.into_iter().chain(fp).map(|case| Case {
                dtype,
                record: Record::Bits,
                ..case
            }));
        }
    }
    cases
}

fn only_wide(case: &Case, kernels: &std::collections::BTreeMap<String, u64>) -> Result<()> {
    let kernels = products(kernels);
    let kernel = kernels.keys().next().context("no kernel ran")?;
    ensure!(
        kernels.len() == 1 && kernel.contains("_qmv_wide_"),
        "{case}: {kernels:?}"
    );
    Ok(())
}
