//! Every kernel that a policy can lead to is in the library that was built. That the sources instantiate them is
//! `cargo xtask check closure`'s to say.

use anyhow::{Result, ensure};
use dispatch_plan::Path;
use metal_sim::Library;
use proofs::Prefix;

pub(crate) fn complete() -> Result<()> {
    let library = Library::read(&Prefix::patched()?.metallib()?)?;
    let asked = dispatch_plan::kernels(false)?;
    let missing: Vec<_> = asked
        .keys()
        .filter(|kernel| library.entry(kernel).is_none())
        .collect();
    ensure!(
        missing.is_empty(),
        "{} of {} names are not in the library, as {:?}",
        missing.len(),
        asked.len(),
        missing.first()
    );
    let of = |path: Path, affine: bool| {
        asked
            .iter()
            .filter(|(name, other)| other.path == path && name.starts_with("affine_") == affine)
            .count()
    };
    // 7 bits, 3 groups, 3 types, batched and not; then V and the twin.
    ensure!(
        of(Path::Streamed, true) == 126 * 5 * 2,
        "{} streamed",
        of(Path::Streamed, true)
    );
    ensure!(
        of(Path::Wide, true) == 126 * 7,
        "{} wide",
        of(Path::Wide, true)
    );
    // 3 modes batched and not, nvfp4 with a global scale, 3 types; then V and the twin.
    ensure!(
        of(Path::Streamed, false) == 21 * 5 * 2,
        "{} streamed of fp modes",
        of(Path::Streamed, false)
    );
    // Not with a global scale.
    ensure!(
        of(Path::Wide, false) == 18 * 4,
        "{} wide of fp modes",
        of(Path::Wide, false)
    );
    Ok(())
}
