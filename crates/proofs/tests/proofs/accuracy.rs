//! Errors against float64. The table of all bits and types is a command: `proofs accuracy`.

use anyhow::Result;
use dispatch_plan::Dtype;
use proofs::{Accuracy, Driver, Prefix};

pub(crate) fn within_the_type() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    let types = Dtype::ALL.iter().map(|&dtype| (4, dtype));
    Accuracy::measure(&driver, &types.collect::<Vec<_>>())?.check()
}
