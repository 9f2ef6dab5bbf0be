//! Every kernel that a policy can ask for is in the built library. Whether the sources instantiate them is checked by
//! `cargo xtask check closure`.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use dispatch_plan::Path;
use metal_sim::Library;
use proofs::Prefix;

pub(crate) fn complete() -> Result<()> {
    let library = Library::read(&Prefix::patched()?.metallib()?)?;
    let asked = dispatch_plan::kernels(false)?;
    let dense = dispatch_plan::dense_kernels()?;
    let attention = dispatch_plan::attention_kernels()?;
    let missing: Vec<_> = asked
        .keys()
        .chain(&dense)
        .chain(&attention)
        .filter(|kernel| library.entry(kernel).is_none())
        .collect();
    ensure!(
        missing.is_empty(),
        "{} of {} names are not in the library, as {:?}",
        missing.len(),
        asked.len() + dense.len() + attention.len(),
        missing.first()
    );
    let of = |path: Path, affine: bool| {
        asked
            .iter()
            .filter(|(name, other)| other.path == path && name.starts_with("affine_") == affine)
            .count()
    };
    // 3 groups, 3 types, batched and not; then widths times V, and the alternative arrangement. At one bit there is no
    // V of 6 and 8. The alternative is for single products below 8 bits.
    ensure!(
        of(Path::Streamed, true) == (18 * (7 * 5 - 2) + 9 * (6 * 5 - 2)) * 2,
        "{} streamed",
        of(Path::Streamed, true)
    );
    ensure!(
        of(Path::Wide, true) == 126 * 7,
        "{} wide",
        of(Path::Wide, true)
    );
    // 3 modes batched and not, nvfp4 with a global scale, 3 types; then V and the alternative arrangement at 4 bits.
    ensure!(
        of(Path::Streamed, false) == (21 + 9) * 5 * 2,
        "{} streamed of fp modes",
        of(Path::Streamed, false)
    );
    // These have no global scale.
    ensure!(
        of(Path::Wide, false) == 18 * 4,
        "{} wide of fp modes",
        of(Path::Wide, false)
    );
    // All of the overlay's own kernels are used.
    for (prefix, asked) in [
        ("gemv_rows_", &dense),
        ("gemv_t_rows_", &dense),
        ("sdpa_vector_2pass_1_gqa_rows_", &attention),
    ] {
        let own = |name: &&str| name.starts_with(prefix);
        let there: BTreeSet<&str> = library.names().filter(own).collect();
        let asked: BTreeSet<&str> = asked.iter().map(String::as_str).filter(own).collect();
        ensure!(
            !asked.is_empty() && there == asked,
            "{} kernels {prefix}* are in the library, {} can be asked for, as {:?} only in one",
            there.len(),
            asked.len(),
            there.symmetric_difference(&asked).next()
        );
    }
    Ok(())
}
