//! The raised tile cap. The comparison with pristine MLX is a command: `proofs cap`.

use anyhow::{Result, ensure};
use proofs::{Driver, Prefix, compare_with_smaller_tiles};

pub(crate) fn same_bits() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    // Each larger tile at 4 bits, and two of them; M = 8 at all widths.
    let at_4_bits = compare_with_smaller_tiles(&driver, &[4], &[6, 7, 8, 13])?;
    let others = compare_with_smaller_tiles(&driver, &[1, 2, 3, 5, 6, 8], &[8])?;
    ensure!(
        at_4_bits == 4 && others == 6,
        "{at_4_bits} and {others} products"
    );
    Ok(())
}
