//! Compares rows of several with rows alone.

use anyhow::{Result, ensure};
use dispatch_plan::{Dtype, Policy};
use proofs::{
    Case, Driver, Group, Kind, Modes, Outcome, Prefix, Tier, control, differing, groups, run,
};

fn expect_none(outcome: &Outcome) -> Result<()> {
    let total = outcome.total();
    ensure!(
        outcome.findings.is_empty() && total.differing == 0 && total.products > 0,
        "{total:?}: {:#?}",
        &outcome.findings[..outcome.findings.len().min(20)]
    );
    Ok(())
}

pub(crate) fn core() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    let groups = groups(Tier::Core, Modes::Affine)?;
    expect_none(&run(&driver, None, &groups, 2, None)?)
}

pub(crate) fn fp_core() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    let groups = groups(Tier::Core, Modes::Fp)?;
    expect_none(&run(&driver, None, &groups, 2, None)?)
}

/// The comparison can fail for the fp modes too, in float32: 16-bit outputs differ so rarely that a few seeds may show
/// none.
pub(crate) fn fp_negative_control() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    let mut group = control(1);
    group.cases.retain(|case| case.dtype == Dtype::Float32);
    for ([mode, _], tally) in differing(&driver, &group)? {
        ensure!(
            tally.differing * 4 > tally.outputs,
            "{mode}: {tally:?}, more than a quarter expected to differ"
        );
    }
    Ok(())
}

/// The comparison can fail, and fails by a wide margin.
pub(crate) fn negative_control() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    for kind in Kind::ALL {
        let case = Case::new(4, 64, kind, [2, 8]).into_iter().collect();
        let [group, ..] = &groups(Tier::Core, Modes::Affine)?[..] else {
            anyhow::bail!("no groups");
        };
        let group = Group {
            policy: Policy::DEFAULT,
            cases: case,
            ..group.clone()
        };
        for answer in driver.run(&group.how(), &group.cases)? {
            for together in &answer.together {
                ensure!(
                    together.differing * 2 > together.outputs,
                    "{kind:?}, M = {}: {} of {} outputs differ, more than half expected",
                    together.m,
                    together.differing,
                    together.outputs
                );
            }
        }
    }
    Ok(())
}
