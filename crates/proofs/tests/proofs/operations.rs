//! Attention, dense products, gathers and gated delta: rows of a block against rows alone.

use anyhow::{Result, ensure};
use proofs::{Driver, Family, Prefix, Tier, check_names, compare, jobs};

fn core(family: Family) -> Result<()> {
    let prefix = Prefix::patched()?;
    let driver = Driver::of_operations(&prefix, &[])?;
    let jobs = jobs(family, Tier::Core)?;
    let comparison = compare(&driver, &prefix.stamp().final_tree, &jobs, 2, None, None)?;
    ensure!(
        comparison.findings.is_empty() && comparison.jobs[0] == jobs.len(),
        "{:#?}",
        comparison.findings
    );
    for kind in ["exact", "narrow"] {
        let total = comparison.total(kind);
        ensure!(
            total.outputs > 0 && total.differing == 0,
            "{kind}: {total:?}"
        );
    }
    // Otherwise the comparison shows nothing.
    for ((operation, dtype, kind), compared) in &comparison.by_policy {
        ensure!(
            kind != "default" || dtype != "float32" || compared.differing > 0,
            "{operation} in {dtype} does not differ by default either"
        );
    }
    Ok(())
}

pub(crate) fn attention() -> Result<()> {
    core(Family::Attention)
}

pub(crate) fn dense() -> Result<()> {
    core(Family::Dense)
}

pub(crate) fn rest() -> Result<()> {
    core(Family::Rest)
}

/// The least and the greatest generation's Ultra, a Max and a small GPU, next to the thresholds.
pub(crate) fn names() -> Result<()> {
    let driver = Driver::of_operations(&Prefix::patched()?, &[])?;
    for architecture in ["g13d", "g15p", "g16s", "g17d"] {
        let names = check_names(&driver, architecture.parse()?, 64, 1, 8192)?;
        ensure!(
            names.findings.is_empty() && names.dispatches < names.rows,
            "{} findings: {:#?}",
            names.findings.len(),
            &names.findings[..names.findings.len().min(5)]
        );
    }
    Ok(())
}
