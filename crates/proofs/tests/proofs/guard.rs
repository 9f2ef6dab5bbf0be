//! Memory beyond the buffers is not accessed; checked on a device on which such accesses fault.

use anyhow::{Context, Result, ensure};
use dispatch_plan::Policy;
use metal_sim::Device;
use proofs::{Case, Driver, FloatFormat, How, Kind, Prefix};

use crate::mutants::Mutant;

/// Streamed kernels of every V, with rows and outputs that fill their tiles and that do not.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in Kind::ALL {
        for n in [16, 13, 5] {
            cases.extend(Case::new(4, 64, kind, 2..=8).map(|case| Case { n, ..case }));
        }
        cases.extend(Case::new(4, 64, kind, [8]).map(|case| Case {
            n: 13,
            batch: 2,
            ..case
        }));
    }
    // Chunks of other words, and the fp format.
    for bits in [3, 6, 8] {
        let case = Case::new(bits, 64, Kind::Fast, [8]);
        cases.extend(case.map(|case| Case { n: 13, ..case }));
    }
    for format in FloatFormat::ALL {
        let case = format.case(Kind::Tail, [8]);
        cases.extend(case.map(|case| Case { n: 13, ..case }));
    }
    let others: Vec<_> = cases
        .iter()
        .filter_map(Case::in_the_other_arrangement)
        .collect();
    cases.extend(others);
    cases
}

fn how(policy: Policy) -> How {
    How {
        device: Device::new().guard(true),
        policy,
        metallib: None,
    }
}

pub(crate) fn kept() -> Result<()> {
    let prefix = Prefix::patched()?;
    let driver = Driver::build(&prefix)?;
    // Under `wide`, a kernel for two rows computes a single row.
    for policy in [Policy::EXACT, Policy::WIDE] {
        for answer in driver.run(&how(policy), &cases())? {
            let mut together = answer.together.iter();
            ensure!(together.all(|together| together.differing == 0), "{policy}");
        }
    }

    // A kernel that does not clamp its rows must be caught, or the guard is useless.
    let folder = tempfile::tempdir()?;
    let case = Case::new(4, 64, Kind::Fast, [7, 9]).context("no such K")?;
    let case = Case { n: 13, ..case };
    let other = case
        .in_the_other_arrangement()
        .context("one arrangement only")?;
    for unclamped in [
        Mutant {
            name: "rows of the weights are not clamped",
            edits: &[("min(row, last_row)", 3, "row")],
        },
        Mutant {
            name: "rows of x are not clamped",
            edits: &[
                ("min(v, count - 1)", 2, "v"),
                // In the code for a full tile.
                ("count == V", 1, "true"),
            ],
        },
    ] {
        let how = How {
            metallib: Some(unclamped.plant("qmv_streamed", &prefix, folder.path())?),
            ..how(Policy::EXACT)
        };
        for case in [&case, &other] {
            let text = match driver.run(&how, std::slice::from_ref(case)) {
                Ok(_) => anyhow::bail!("{}: unnoticed in {case}", unclamped.name),
                Err(error) => format!("{error:#}"),
            };
            ensure!(text.contains("affine_qmv_streamed_fast_float"), "{text}");
        }
    }
    Ok(())
}
