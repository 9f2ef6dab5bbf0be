//! The list of all files of a folder with their sums, in the form that `sha256sum -c` reads. Prefixes and bundles have
//! one.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::io::{ErrorKind, Read};

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use fs_err::File;
use sha2::{Digest, Sha256};

use crate::files::walk;

/// The list's name, in the folder's root.
pub const FILE_NAME: &str = "MANIFEST.sha256";

/// How a folder differs from its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// There is no list.
    NoList,
    /// A listed file is not there.
    Missing(Utf8PathBuf),
    /// A listed file has another content.
    Changed(Utf8PathBuf),
    /// A file is not listed.
    Added(Utf8PathBuf),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoList => write!(f, "it has no {FILE_NAME}, by which its files are checked"),
            Self::Missing(name) => write!(f, "{name} is missing"),
            Self::Changed(name) => write!(f, "{name} is not as it was built"),
            Self::Added(name) => write!(f, "{name} was added"),
        }
    }
}

/// Lists every file of the folder but the list itself, and returns their number.
pub fn write(folder: &Utf8Path) -> Result<usize> {
    let mut text = String::new();
    let files = files(folder)?;
    for (name, path) in &files {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}  {name}", sum(path)?);
    }
    fs_err::write(folder.join(FILE_NAME), text)?;
    Ok(files.len())
}

/// The names and sums that the folder's list has; nothing where there is no list.
pub fn read(folder: &Utf8Path) -> Result<Option<BTreeMap<Utf8PathBuf, String>>> {
    let path = folder.join(FILE_NAME);
    let text = match fs_err::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    text.lines()
        .map(|line| {
            let (sum, name) = line.split_once("  ")?;
            Some((name.into(), sum.to_owned()))
        })
        .collect::<Option<_>>()
        .map(Some)
        .with_context(|| format!("{path} is not a list of sums"))
}

/// The first file that is not as the folder's list says.
pub fn check(folder: &Utf8Path) -> Result<Option<Fault>> {
    let Some(listed) = read(folder)? else {
        return Ok(Some(Fault::NoList));
    };
    let found = files(folder)?;
    // Sums come last: they take the time.
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

/// The files of the folder but the list, by their names in it.
fn files(folder: &Utf8Path) -> Result<BTreeMap<Utf8PathBuf, Utf8PathBuf>> {
    // Itself it may be a link, as that to the last build is.
    let folder = Utf8PathBuf::try_from(fs_err::canonicalize(folder)?)?;
    let mut files = BTreeMap::new();
    for path in walk(&folder)? {
        let name = path.strip_prefix(&folder)?;
        if name != FILE_NAME {
            files.insert(name.to_owned(), path);
        }
    }
    Ok(files)
}

fn sum(path: &Utf8Path) -> Result<String> {
    let mut file = File::open(path)?;
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
    fn folder() -> (tempfile::TempDir, Utf8PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(scratch.path()).unwrap().to_owned();
        fs_err::create_dir_all(path.join("bin")).unwrap();
        fs_err::write(path.join("bin/run"), "#!/bin/sh").unwrap();
        // Its place among names is not its place among paths.
        fs_err::write(path.join("bin.txt"), "").unwrap();
        assert_eq!(write(&path).unwrap(), 2);
        (scratch, path)
    }

    #[test]
    fn every_file_is_listed_with_its_sum() {
        let (_scratch, path) = folder();
        let list = fs_err::read_to_string(path.join(FILE_NAME)).unwrap();
        // printf '#!/bin/sh' | sha256sum
        let line = "3af71adb278ad4af33c144b78fa1ae708da03b773d98324ae991a7daedb53ca2  bin/run\n";
        assert_eq!(list.lines().count(), 2);
        assert!(list.contains(line), "{list}");
        // The list is no part of itself.
        assert_eq!(write(&path).unwrap(), 2);
        assert_eq!(list, fs_err::read_to_string(path.join(FILE_NAME)).unwrap());
    }

    #[test]
    fn the_first_difference_is_named() {
        let (scratch, path) = folder();
        let finds = |fault: Option<Fault>| assert_eq!(check(&path).unwrap(), fault);
        finds(None);
        let elsewhere = tempfile::tempdir().unwrap();
        let link = Utf8Path::from_path(elsewhere.path()).unwrap().join("link");
        fs_err::os::unix::fs::symlink(scratch.path(), &link).unwrap();
        assert_eq!(check(&link).unwrap(), None);
        fs_err::write(path.join("bin/another"), "").unwrap();
        finds(Some(Fault::Added("bin/another".into())));
        fs_err::write(path.join("bin/run"), "#!/bin/sx").unwrap();
        finds(Some(Fault::Changed("bin/run".into())));
        fs_err::remove_file(path.join("bin.txt")).unwrap();
        finds(Some(Fault::Missing("bin.txt".into())));
        fs_err::write(path.join(FILE_NAME), "bin.txt").unwrap();
        let error = check(&path).unwrap_err().to_string();
        assert!(error.contains("not a list of sums"), "{error}");
        fs_err::remove_file(path.join(FILE_NAME)).unwrap();
        finds(Some(Fault::NoList));
    }
}
