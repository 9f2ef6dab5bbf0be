//! Files that several processes may make at once: each is written elsewhere
//! and renamed into place, so that a reader sees all of it or nothing.

use std::env;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::Error;

/// Where compiled kernels are kept: `MTL_SIM_CACHE`, else `metal-sim` in the
/// user's cache folder, else in the temporary one.
pub fn default_folder() -> PathBuf {
    folder_in(|name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    })
}

/// The same in an environment whose variables are `set` so.
pub fn folder_in(set: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    set("MTL_SIM_CACHE").unwrap_or_else(|| {
        set("XDG_CACHE_HOME")
            .or_else(|| set("HOME").map(|home| home.join(".cache")))
            .unwrap_or_else(env::temp_dir)
            .join("metal-sim")
    })
}

/// The first 24 hex digits of a hash.
pub(crate) fn short_hex(hash: Sha256) -> String {
    hash.finalize()
        .iter()
        .take(12)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Writes a file and the folders above it.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    if let Some(parent) = path.parent() {
        fs_err::create_dir_all(parent)?;
    }
    Ok(fs_err::write(path, bytes)?)
}

/// Lets `fill` write a folder beside `target` and renames it there. Another
/// process that was faster wins; both made the same.
pub(crate) fn publish_folder(
    cache: &Path,
    target: &Path,
    fill: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<(), Error> {
    let temporary = scratch(cache)?;
    let made = temporary.path().join("made");
    fill(&made)?;
    match fs_err::rename(&made, target) {
        Err(_) if target.is_dir() => Ok(()),
        result => Ok(result?),
    }
}

/// Lets `fill` write a file and renames it to `target`.
pub(crate) fn publish_file(
    cache: &Path,
    target: &Path,
    fill: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<(), Error> {
    let temporary = scratch(cache)?;
    let made = temporary.path().join("made");
    fill(&made)?;
    if let Some(parent) = target.parent() {
        fs_err::create_dir_all(parent)?;
    }
    Ok(fs_err::rename(&made, target)?)
}

/// A folder in the cache that goes when dropped.
pub(crate) fn scratch(cache: &Path) -> Result<tempfile::TempDir, Error> {
    fs_err::create_dir_all(cache)?;
    Ok(tempfile::Builder::new().prefix("tmp-").tempdir_in(cache)?)
}
