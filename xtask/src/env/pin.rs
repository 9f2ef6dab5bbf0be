//! The MLX version that a consumer is written for.

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use serde::Deserialize;

use crate::host::Host;

/// A consumer's own pin.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pin {
    version: String,
    /// The file that names it.
    file: Utf8PathBuf,
}

/// Rejects a consumer written for another MLX: functions may have other arguments there, and the error would only show
/// at run time.
pub(super) fn check(pin: &Pin, ours: &str, accepted: Option<&str>) -> Result<()> {
    if pin.version != ours && accepted != Some(&pin.version) {
        bail!(
            "{} is written for MLX {theirs}, but this checkout pins {ours}: use a release of it written for \
             {ours}, or accept it with `--accept {theirs}`; docs/guide/bindings.md lists what was tried. Moving the \
             pin may need manual work if patches do not fit: `cargo xtask bump-pin v{theirs} --dry-run` shows it \
             (docs/guide/move-the-pin.md)",
            pin.file,
            theirs = pin.version
        );
    }
    Ok(())
}

/// The tag that mlx-c's CMake file fetches.
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
        .with_context(|| {
            format!("{file} has no MLX release as GIT_TAG: is {folder} a checkout of mlx-c?")
        })?
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
        serde_json::from_str(&text).context("`cargo metadata` printed an unknown format")?;
    let package = metadata
        .packages
        .iter()
        .find(|package| package.name == "mlx-sys")
        .with_context(|| format!("{project} does not depend on mlx-rs or mlx-sys"))?;
    let folder = package.manifest_path.parent();
    Ok(folder.unwrap_or(&package.manifest_path).join("src/mlx-c"))
}
