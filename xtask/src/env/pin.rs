//! Which MLX a consumer is written for.

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use serde::Deserialize;

use crate::host::Host;

/// A consumer's own pin.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pin {
    /// The version of MLX.
    version: String,
    /// The file that says so.
    file: Utf8PathBuf,
}

/// Refuses a consumer that is written for another MLX: its functions may have other arguments there, and nothing would
/// tell before a program goes wrong.
pub(super) fn check(pin: &Pin, ours: &str, accepted: Option<&str>) -> Result<()> {
    if pin.version != ours && accepted != Some(&pin.version) {
        bail!(
            "{} is written for MLX {theirs}, and this checkout pins {ours}: take a release of it that is written for \
             {ours}, or take it as it is with `--accept {theirs}`; docs/guide/bindings.md says what was tried. To move the \
             pin may need work by hand, where patches do not fit: `cargo xtask bump-pin v{theirs} --dry-run` shows it \
             (docs/guide/move-the-pin.md)",
            pin.file,
            theirs = pin.version
        );
    }
    Ok(())
}

/// The tag that mlx-c's CMake file asks for.
pub(super) fn of_mlx_c(folder: &Utf8Path) -> Result<Pin> {
    let file = folder.join("CMakeLists.txt");
    let text = fs_err::read_to_string(&file)?;
    let version = text
        .split_once("ml-explore/mlx.git")
        .and_then(|(_, rest)| rest.split_once("GIT_TAG"))
        .and_then(|(_, rest)| {
            let tag = rest.split([')', ' ', '\n']).find(|word| !word.is_empty())?;
            tag.strip_prefix('v')
        })
        .with_context(|| format!("{file} names no release of MLX as GIT_TAG: is {folder} mlx-c?"))?
        .to_owned();
    Ok(Pin { version, file })
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: Utf8PathBuf,
}

/// The mlx-c inside the mlx-sys that a package depends on.
pub(super) fn mlx_c_of_mlx_rs(host: &Host, project: &Utf8Path) -> Result<Utf8PathBuf> {
    let text = host
        .cmd(host.var("CARGO").unwrap_or("cargo"))
        .args(["metadata", "--format-version=1"])
        .dir(project)
        .read()?;
    let metadata: Metadata =
        serde_json::from_str(&text).context("`cargo metadata` prints another format")?;
    let package = metadata
        .packages
        .iter()
        .find(|package| package.name == "mlx-sys")
        .with_context(|| format!("{project} does not depend on mlx-rs or mlx-sys"))?;
    let folder = package.manifest_path.parent();
    Ok(folder.unwrap_or(&package.manifest_path).join("src/mlx-c"))
}
