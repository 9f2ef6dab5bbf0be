//! Replaces something older with something finished, in one step.

use camino::Utf8Path;
use fs_err as fs;

use crate::error::Result;
use crate::place::disk;

/// Puts the file or folder `new` at `place`. What was there is at `new` afterwards.
///
/// The place always has the old one or the new one. Only if the file system cannot exchange the two, it is empty for an
/// instant and the old one is at `aside`: [`recover`] puts it back after a kill. All three must be on one file system,
/// and `aside` must not exist.
///
/// # Errors
/// `new` does not exist, or the place cannot be changed; it stays as it was.
pub fn put(new: &Utf8Path, place: &Utf8Path, aside: &Utf8Path) -> Result<()> {
    if !is_there(place) {
        return disk::rename(new, place);
    }
    if disk::exchange(new, place)? {
        return Ok(());
    }
    disk::rename(place, aside)?;
    if let Err(error) = disk::rename(new, place) {
        disk::rename(aside, place)?;
        return Err(error);
    }
    disk::rename(aside, new)
}

/// Puts back what a killed [`put`] left at `aside`, or removes it if the place is occupied again.
///
/// # Errors
/// The files cannot be changed.
pub fn recover(place: &Utf8Path, aside: &Utf8Path) -> Result<()> {
    if is_there(aside) && !is_there(place) {
        disk::rename(aside, place)?;
    }
    disk::remove_tree(aside)
}

/// Whether anything is there, including a link without a target.
fn is_there(path: &Utf8Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests {
    use camino::Utf8PathBuf;

    use super::*;

    fn scratch() -> (tempfile::TempDir, [Utf8PathBuf; 3]) {
        let scratch = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(scratch.path()).unwrap();
        let paths = ["new", "place", "aside"].map(|name| folder.join(name));
        (scratch, paths)
    }

    #[test]
    fn files_and_folders_take_each_others_place() {
        let (_scratch, [new, place, aside]) = scratch();
        fs::create_dir(&new).unwrap();
        put(&new, &place, &aside).unwrap();
        assert!(place.is_dir() && !new.exists());
        fs::write(&new, "text").unwrap();
        put(&new, &place, &aside).unwrap();
        assert!(place.is_file() && new.is_dir() && !aside.exists());
        fs::remove_dir(&new).unwrap();
        put(&new, &place, &aside).unwrap_err();
        assert_eq!(fs::read_to_string(&place).unwrap(), "text");
    }

    #[test]
    fn what_was_left_aside_comes_back_and_an_outdated_one_goes() {
        let (_scratch, [_, place, aside]) = scratch();
        for (old, now) in [("one", "one"), ("two", "one")] {
            fs::write(&aside, old).unwrap();
            recover(&place, &aside).unwrap();
            assert_eq!(fs::read_to_string(&place).unwrap(), now);
            assert!(!aside.exists());
        }
        recover(&place, &aside).unwrap();
    }
}
