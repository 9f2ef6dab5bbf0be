//! Rows of several against rows alone.

use anyhow::{Result, ensure};
use qmv_plan::Policy;
use qmv_proof::{Case, Driver, Group, Kind, Outcome, Prefix, Tier, groups, run};

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
    expect_none(&run(&driver, None, &groups(Tier::Core)?, 2, None)?)
}

/// That the comparison can fail, and fails by much.
pub(crate) fn negative_control() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    for kind in Kind::ALL {
        let case = Case::new(4, 64, kind, [2, 8]).into_iter().collect();
        let [group, ..] = &groups(Tier::Core)?[..] else {
            anyhow::bail!("no groups");
        };
        let group = Group {
            policy: Policy::Default,
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
