//! The checksums of a build folder's files. Ninja compares only times: it would use a damaged object, and an
//! install would certify the library linked from it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::SystemTime;

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use fs_err::File;
use mlx_prefix::sums;
use walkdir::WalkDir;

/// The list in the build folder; while CMake or Ninja run, a file next to it replaces it.
const LIST: &str = ".outputs.sha256";
const RUNNING: &str = ".running";

/// Endings of files that Ninja makes again if they are gone. For the others, which CMake makes, the folder is cleared.
const MADE_BY_NINJA: [&str; 4] = ["o", "a", "air", "metallib"];

/// Ninja's record of earlier runs. Without it, Ninja builds everything.
const OF_NINJA: [&str; 2] = [".ninja_log", ".ninja_deps"];

/// The files of a build folder after the last run.
pub(super) struct Outputs {
    folder: Utf8PathBuf,
    known: BTreeMap<String, Known>,
}

struct Known {
    modified: SystemTime,
    sum: String,
}

impl Outputs {
    /// Compares a build folder with its list and removes files that were damaged since, so that they are built again.
    /// Returns their names.
    ///
    /// Files that a killed run wrote, and those in a folder of an earlier version, are in no list. Their objects are
    /// trusted; libraries are linked again, which takes seconds.
    pub(super) fn check(folder: &Utf8Path) -> Result<(Self, Vec<String>)> {
        let mut outputs = Self {
            folder: folder.to_owned(),
            known: BTreeMap::new(),
        };
        let listed = fs_err::read_to_string(folder.join(LIST)).unwrap_or_default();
        let running = folder.join(RUNNING);
        let killed = fs_err::metadata(&running).and_then(|marker| marker.modified());
        let killed = killed.ok();
        let mut damaged = Vec::new();
        // A list that cannot be parsed counts as empty.
        for (name, wanted) in sums::parse(&listed).unwrap_or_default() {
            let name = name.to_string_lossy().into_owned();
            // Ninja or CMake makes missing files again.
            let Ok(metadata) = fs_err::metadata(folder.join(&name)) else {
                continue;
            };
            let modified = metadata.modified()?;
            if killed.is_some_and(|begun| modified >= begun) {
                continue;
            }
            let sum = sums::sum_of(File::open(folder.join(&name))?)?;
            if sum == wanted {
                outputs.known.insert(name, Known { modified, sum });
            } else {
                damaged.push(name);
            }
        }
        outputs.remove(&damaged)?;
        outputs.remove_linked()?;
        if folder.exists() && killed.is_none() {
            File::create(running)?;
        }
        Ok((outputs, damaged))
    }

    fn remove(&mut self, damaged: &[String]) -> Result<()> {
        let by_ninja = |name: &String| {
            let extension = Utf8Path::new(name).extension();
            extension.is_some_and(|extension| MADE_BY_NINJA.contains(&extension))
                || OF_NINJA.contains(&name.as_str())
        };
        if damaged.iter().all(by_ninja) {
            for name in damaged {
                fs_err::remove_file(self.folder.join(name))?;
            }
        } else {
            fs_err::remove_dir_all(&self.folder)?;
            self.known.clear();
        }
        Ok(())
    }

    /// Removes the libraries that are in no list.
    fn remove_linked(&self) -> Result<()> {
        // The folder may be missing.
        for entry in WalkDir::new(&self.folder).into_iter().flatten() {
            let Some(path) = Utf8Path::from_path(entry.path()) else {
                continue;
            };
            let linked = matches!(path.extension(), Some("a" | "metallib"));
            let name = path.strip_prefix(&self.folder)?.as_str();
            if linked && entry.file_type().is_file() && !self.known.contains_key(name) {
                fs_err::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Lists the current files after a run, whether it succeeded or not.
    pub(super) fn record(self) -> Result<()> {
        let Self { folder, known } = self;
        if !folder.exists() {
            return Ok(());
        }
        let mut text = String::new();
        for entry in WalkDir::new(&folder).sort_by_file_name() {
            let entry = entry.with_context(|| format!("cannot list {folder}"))?;
            let path = Utf8Path::from_path(entry.path())
                .with_context(|| format!("{} is not UTF-8", entry.path().display()))?;
            let name = path.strip_prefix(&folder)?.as_str();
            if !entry.file_type().is_file() || [LIST, RUNNING].contains(&name) {
                continue;
            }
            let modified = entry.metadata()?.modified()?;
            let sum = match known.get(name) {
                // It was just read.
                Some(known) if known.modified == modified => known.sum.clone(),
                _ => sums::sum_of(File::open(path)?)?,
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{sum}  {name}");
        }
        let new = folder.join(format!("{LIST}.new"));
        fs_err::write(&new, text)?;
        fs_err::rename(&new, folder.join(LIST))?;
        match fs_err::remove_file(folder.join(RUNNING)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn damage_is_found_and_what_a_killed_run_wrote_is_not_taken_for_it() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(scratch.path()).unwrap().join("build");
        let check = || Outputs::check(&folder).unwrap();
        let (outputs, damaged) = check();
        assert!(damaged.is_empty() && !folder.exists());
        fs_err::create_dir_all(folder.join("sub")).unwrap();
        let files = ["a.o", "sub/b.o", "build.ninja"];
        for file in files {
            fs_err::write(folder.join(file), file).unwrap();
        }
        outputs.record().unwrap();

        let (outputs, damaged) = check();
        assert!(damaged.is_empty());
        outputs.record().unwrap();
        // With the old time, too.
        let time = fs_err::metadata(folder.join("a.o")).unwrap().modified();
        fs_err::write(folder.join("a.o"), "b.o").unwrap();
        let file = File::options().write(true).open(folder.join("a.o"));
        file.unwrap().file().set_modified(time.unwrap()).unwrap();
        let (outputs, damaged) = check();
        assert_eq!(damaged, ["a.o"]);
        assert!(!folder.join("a.o").exists() && folder.join("sub/b.o").exists());
        outputs.record().unwrap();

        // A killed run leaves its mark, and the objects that it wrote.
        drop(check());
        let later = SystemTime::now() + Duration::from_secs(2);
        fs_err::write(folder.join("sub/b.o"), "new").unwrap();
        let file = File::options().write(true).open(folder.join("sub/b.o"));
        file.unwrap().file().set_modified(later).unwrap();
        fs_err::write(folder.join("libmlx.a"), "of unknown objects").unwrap();
        let (outputs, damaged) = check();
        assert!(damaged.is_empty() && !folder.join("libmlx.a").exists());
        outputs.record().unwrap();

        // As an earlier version left it.
        fs_err::remove_file(folder.join(LIST)).unwrap();
        fs_err::write(folder.join("libmlx.a"), "cut").unwrap();
        let (outputs, damaged) = check();
        assert!(damaged.is_empty() && !folder.join("libmlx.a").exists());
        assert!(folder.join("sub/b.o").exists());
        outputs.record().unwrap();

        // A list cut within a sum, within a name or between lines covers no library that it does not name.
        let (outputs, _) = check();
        fs_err::write(folder.join("libmlx.a"), "whole").unwrap();
        outputs.record().unwrap();
        let list = fs_err::read_to_string(folder.join(LIST)).unwrap();
        let line = list.find("libmlx.a").unwrap() - 66;
        assert!(line > 0 && list[line..].contains("sub/b.o"));
        for cut in [line - 60, line, line + 10, line + 70] {
            fs_err::write(folder.join("libmlx.a"), "cut").unwrap();
            fs_err::write(folder.join(LIST), &list[..cut]).unwrap();
            let (outputs, _) = check();
            assert!(!folder.join("libmlx.a").exists(), "{cut}");
            assert!(folder.join("sub/b.o").exists(), "{cut}");
            outputs.record().unwrap();
        }

        // Ninja's own log is damaged: Ninja builds again, and CMake need not.
        fs_err::write(folder.join(".ninja_log"), "whole").unwrap();
        check().0.record().unwrap();
        fs_err::write(folder.join(".ninja_log"), "cut").unwrap();
        let (outputs, damaged) = check();
        assert_eq!(damaged, [".ninja_log"]);
        assert!(!folder.join(".ninja_log").exists() && folder.join("sub/b.o").exists());
        outputs.record().unwrap();

        fs_err::write(folder.join("build.ninja"), "cut").unwrap();
        let (outputs, damaged) = check();
        assert_eq!(damaged, ["build.ninja"]);
        assert!(!folder.exists());
        outputs.record().unwrap();
    }
}
