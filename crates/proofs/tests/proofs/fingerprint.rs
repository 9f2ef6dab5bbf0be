//! Kernels of another build are rejected at the first quantized product.

use anyhow::{Context, Result, ensure};
use dispatch_plan::Policy;
use metal_sim::{Device, Library};
use proofs::{Case, Driver, How, Kind, Prefix};

const PREFIX: &str = "mlx_overlay_tree_";

pub(crate) fn refused() -> Result<()> {
    let prefix = Prefix::patched()?;
    let own = prefix.metallib()?;
    let tree = &prefix.stamp().final_tree;
    let library = Library::read(&own)?;
    let fingerprints = library
        .names()
        .filter(|name| name.starts_with(PREFIX))
        .collect::<Vec<_>>();
    ensure!(
        fingerprints == [format!("{PREFIX}{tree}")],
        "{} has {fingerprints:?} for tree {tree}",
        own.display()
    );

    let driver = Driver::build(&prefix)?;
    let folder = tempfile::tempdir()?;
    let bytes = fs_err::read_to_string(&own)?;
    let other = "0123456789abcdef0123456789abcdef01234567";
    // The same length: the container stores byte counts.
    for (name, replacement, told) in [
        (
            "other",
            format!("{PREFIX}{other}"),
            format!("from tree {other}"),
        ),
        (
            "none",
            format!("mlx_overlay_past_{other}"),
            "names no tree".to_owned(),
        ),
    ] {
        let file = folder.path().join(format!("{name}.metallib"));
        fs_err::write(
            &file,
            bytes.replace(&format!("{PREFIX}{tree}"), &replacement),
        )?;
        Library::read(&file).context("the edited library")?;
        let how = How {
            device: Device::new(),
            policy: Policy::DEFAULT,
            metallib: Some(file.clone()),
        };
        let case = Case::new(4, 64, Kind::Fast, [1]).context("no such K")?;
        let error = match driver.run(&how, &[case]) {
            Ok(_) => anyhow::bail!("{} was not refused", file.display()),
            Err(error) => format!("{error:#}"),
        };
        let host = format!("built from tree {tree}, {} {told}", file.display());
        ensure!(error.contains(&host), "{host} is not in: {error}");
    }
    Ok(())
}
