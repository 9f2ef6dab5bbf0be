//! The list of all files of a prefix or bundle with their checksums, in the format that `sha256sum -c` reads.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// The list's name in the folder's root.
pub const FILE_NAME: &str = "MANIFEST.sha256";

/// How a folder differs from its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// There is no list.
    NoList,
    /// A listed file does not exist.
    Missing(PathBuf),
    /// The content of a listed file has changed.
    Changed(PathBuf),
    /// A file is not listed.
    Added(PathBuf),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoList => write!(f, "it has no {FILE_NAME}, the list of its files' checksums"),
            Self::Missing(name) => write!(f, "{} is missing", name.display()),
            Self::Changed(name) => write!(f, "{} is not as it was built", name.display()),
            Self::Added(name) => write!(f, "{} was added", name.display()),
        }
    }
}

/// Lists every file of the folder except the list itself, and returns their number.
///
/// # Errors
///
/// If the folder contains anything but files and folders, if a file cannot be read, or if the list cannot be written.
pub fn write(folder: impl AsRef<Path>) -> Result<usize> {
    let folder = folder.as_ref();
    let mut text = String::new();
    let files = files(folder)?;
    for (name, path) in &files {
        let name = name.to_str().ok_or_else(|| Error::NotUtf8(path.clone()))?;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}  {name}", sum(path)?);
    }
    let list = folder.join(FILE_NAME);
    fs::write(&list, text).map_err(|error| Error::file(&list, error))?;
    Ok(files.len())
}

/// The names and checksums in the folder's list; `None` if there is no list.
///
/// # Errors
///
/// If the list cannot be read or is invalid.
pub fn read(folder: impl AsRef<Path>) -> Result<Option<BTreeMap<PathBuf, String>>> {
    let path = folder.as_ref().join(FILE_NAME);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| Error::file(&path, error))?,
    };
    parse(&text).map(Some).ok_or(Error::NotAList(path))
}

/// The names and checksums in the text of a list; `None` if it is invalid.
pub fn parse(text: &str) -> Option<BTreeMap<PathBuf, String>> {
    let entry = |line: &str| {
        let (sum, name) = line.split_once("  ")?;
        Some((name.into(), sum.to_owned()))
    };
    text.lines().map(entry).collect()
}

/// The first difference between the folder and its list.
///
/// # Errors
///
/// Those of [`read()`] and [`write()`].
pub fn check(folder: impl AsRef<Path>) -> Result<Option<Fault>> {
    let folder = folder.as_ref();
    let Some(listed) = read(folder)? else {
        return Ok(Some(Fault::NoList));
    };
    let found = files(folder)?;
    // Checksums come last because they are slow.
    if let Some(name) = listed.keys().find(|name| !found.contains_key(*name)) {
        return Ok(Some(Fault::Missing(name.clone())));
    }
    for (name, wanted) in &listed {
        if sum(&found[name])? != *wanted {
            return Ok(Some(Fault::Changed(name.clone())));
        }
    }
    let added = found.into_keys().find(|name| !listed.contains_key(name));
    Ok(added.map(Fault::Added))
}

/// The files of the folder except the list, by their names in the list.
fn files(folder: &Path) -> Result<BTreeMap<PathBuf, PathBuf>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        // The root may be a link, like the one to the last build.
        let path = folder.join(&below);
        let failed = |error| Error::file(&path, error);
        for entry in fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            let name = below.join(entry.file_name());
            if kind.is_dir() {
                folders.push(name);
            } else if !kind.is_file() {
                return Err(Error::NeitherFileNorFolder(entry.path()));
            } else if name != Path::new(FILE_NAME) {
                files.insert(name, entry.path());
            }
        }
    }
    Ok(files)
}

fn sum(path: &Path) -> Result<String> {
    fs::File::open(path)
        .and_then(sum_of)
        .map_err(|error| Error::file(path, error))
}

/// The checksum of the reader's content, in the list's format.
///
/// # Errors
///
/// If reading fails.
pub fn sum_of(mut file: impl Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut piece = [0; 1 << 16];
    loop {
        let length = file.read(&mut piece)?;
        if length == 0 {
            break;
        }
        hash.update(&piece[..length]);
    }
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with its list.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().to_owned();
        fs::create_dir_all(path.join("bin")).unwrap();
        fs::write(path.join("bin/run"), "#!/bin/sh").unwrap();
        // Names sort differently from paths.
        fs::write(path.join("bin.txt"), "").unwrap();
        assert_eq!(write(&path).unwrap(), 2);
        (scratch, path)
    }

    #[test]
    fn every_file_is_listed_with_its_sum() {
        let (_scratch, path) = folder();
        let list = fs::read_to_string(path.join(FILE_NAME)).unwrap();
        // printf '#!/bin/sh' | sha256sum
        let line = "3af71adb278ad4af33c144b78fa1ae708da03b773d98324ae991a7daedb53ca2  bin/run\n";
        assert_eq!(list.lines().count(), 2);
        assert!(list.contains(line), "{list}");
        // The list does not contain itself.
        assert_eq!(write(&path).unwrap(), 2);
        assert_eq!(list, fs::read_to_string(path.join(FILE_NAME)).unwrap());
    }

    #[test]
    fn the_first_difference_is_named() {
        let (scratch, path) = folder();
        let finds = |fault: Option<Fault>| assert_eq!(check(&path).unwrap(), fault);
        finds(None);
        let elsewhere = tempfile::tempdir().unwrap();
        let link = elsewhere.path().join("link");
        std::os::unix::fs::symlink(scratch.path(), &link).unwrap();
        assert_eq!(check(&link).unwrap(), None);
        fs::write(path.join("bin/another"), "").unwrap();
        finds(Some(Fault::Added("bin/another".into())));
        fs::write(path.join("bin/run"), "#!/bin/sx").unwrap();
        finds(Some(Fault::Changed("bin/run".into())));
        fs::remove_file(path.join("bin.txt")).unwrap();
        finds(Some(Fault::Missing("bin.txt".into())));
        fs::write(path.join(FILE_NAME), "bin.txt").unwrap();
        let error = check(&path).unwrap_err().to_string();
        assert!(error.contains("not a list of checksums"), "{error}");
        fs::remove_file(path.join(FILE_NAME)).unwrap();
        finds(Some(Fault::NoList));
    }
}
