//! MLX's official libraries, fetched from PyPI once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// The library in the `mlx-metal` wheel of a version and platform, such as `macosx_14_0_arm64`. If it is not there yet,
/// it is fetched with `pip download` and unpacked into `target/mlx-metal-wheels`.
pub(crate) fn official(version: &str, platform: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("the target folder");
    let folder = target.join(format!("mlx-metal-wheels/{version}-{platform}"));
    let library = folder.join("mlx.metallib");
    if !library.exists() {
        fs::create_dir_all(&folder).expect("a folder for the library");
        // Fetched into a temporary folder and renamed: tests run in parallel, and an interrupted download must not
        // stay.
        let fetched = tempfile::tempdir_in(&folder).expect("a temporary folder");
        download(version, platform, fetched.path());
        fs::rename(unpack(fetched.path()), &library).expect("the library's name");
    }
    library
}

fn download(version: &str, platform: &str, folder: &Path) {
    let download = Command::new("pip")
        .args(["download", "--quiet", "--no-deps", "--only-binary=:all:"])
        .args(["--platform", platform, "--dest"])
        .arg(folder)
        .arg(format!("mlx-metal=={version}"))
        .status()
        .expect("pip");
    assert!(download.success(), "pip download mlx-metal=={version}");
}

/// Unpacks the library from the wheel in `folder`, into that folder.
fn unpack(folder: &Path) -> PathBuf {
    let wheel = fs::read_dir(folder)
        .expect("the wheel's folder")
        .map(|entry| entry.expect("a folder entry").path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .expect("a wheel");
    let mut archive =
        zip::ZipArchive::new(fs::File::open(wheel).expect("the wheel")).expect("a zip archive");
    let mut entry = archive
        .by_name("mlx/lib/mlx.metallib")
        .expect("a metallib in the wheel");
    let library = folder.join("mlx.metallib");
    io::copy(
        &mut entry,
        &mut fs::File::create(&library).expect("a file for the library"),
    )
    .expect("the library");
    library
}
