//! The cache of compiled kernels. Programs that use the device load its shared objects, so only its
//! owner may be able to write the folder, and every file is compared with the checksum in its name
//! before use. Several processes may fill the cache at once: each file is written elsewhere and
//! renamed into place.

use std::fs::{File, Metadata, Permissions};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use sha2::{Digest, Sha256};

use crate::Error;

/// The environment variable for the cache folder.
const SETTING: &str = "MTL_SIM_CACHE";
const GROUP_AND_OTHERS_WRITE: u32 = 0o022;
const GROUP_WRITE: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// The cache folder: `MTL_SIM_CACHE`, else `metal-sim` in the user's cache folder, else (if that
/// cannot be used) a private folder in the temporary folder.
pub fn default_folder() -> PathBuf {
    let set = |name: &str| env::var_os(name).map(PathBuf::from);
    let folder = folder_in(set);
    if is_set(set, SETTING).is_some() || prepare(&folder).is_ok() {
        return folder;
    }
    temporary()
}

/// The first choice for the given environment. Does not check whether the folder can be used.
pub fn folder_in(set: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    // A relative path would mean another folder for each program.
    let absolute = |name| is_set(&set, name).filter(|path| path.is_absolute());
    is_set(&set, SETTING).unwrap_or_else(|| {
        absolute("XDG_CACHE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
            .map_or_else(temporary, |caches| caches.join("metal-sim"))
    })
}

fn is_set(set: impl Fn(&str) -> Option<PathBuf>, name: &str) -> Option<PathBuf> {
    set(name).filter(|value| !value.as_os_str().is_empty())
}

/// A name that is different for each user. Its owner is checked like that of any other cache
/// folder.
fn temporary() -> PathBuf {
    env::temp_dir().join(format!("metal-sim-{}", geteuid().as_raw()))
}

/// Creates or checks the cache folder. Returns its path with links resolved.
pub(crate) fn prepare(folder: &Path) -> Result<PathBuf, Error> {
    let unusable = |reason: String| Error::Cache {
        folder: folder.to_owned(),
        reason,
    };
    let real = usable(folder).map_err(unusable)?;
    for above in real.ancestors().skip(1) {
        let metadata = fs::metadata(above).map_err(|error| unusable(error.to_string()))?;
        let me = (geteuid().as_raw(), getegid().as_raw());
        let user = Some(metadata.uid()).filter(|&id| is_a_user(id));
        let owner = (user.unwrap_or(0), metadata.gid());
        if let Some(risk) = risk_above(owner, metadata.mode(), me) {
            return Err(unusable(format!(
                "{risk} can replace files in {}",
                above.display()
            )));
        }
    }
    Ok(real)
}

/// Who, other than this user and root, could replace our folder: in a sticky folder, only the
/// folder's owner. Users and groups are numbers, the user first.
fn risk_above(owner: (u32, u32), mode: u32, me: (u32, u32)) -> Option<String> {
    let writable = |bits: u32| mode & bits != 0 && mode & STICKY == 0;
    // By convention, a user's private group has the user's number.
    let own_group = owner.1 == 0 || (owner.1 == me.1 && me.1 == me.0);
    if owner.0 != me.0 && owner.0 != 0 {
        Some(format!("user {}", owner.0))
    } else if writable(OTHERS_WRITE) {
        Some("every user".to_owned())
    } else if writable(GROUP_WRITE) && !own_group {
        Some(format!("group {}", owner.1))
    } else {
        None
    }
}

/// In a user namespace (a container, a sandbox), folders of unmapped users belong to an id that no
/// user has.
fn is_a_user(id: u32) -> bool {
    let Ok(map) = fs::read_to_string("/proc/self/uid_map") else {
        return true;
    };
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        match (numbers.next(), numbers.nth(1)) {
            (Some(Ok(first)), Some(Ok(count))) => (first..first + count).contains(&id.into()),
            _ => true,
        }
    })
}

fn usable(folder: &Path) -> Result<PathBuf, String> {
    let text = |error: io::Error| error.to_string();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(text)?;
    // Check the link itself too: its owner can redirect it later.
    for metadata in [fs::symlink_metadata(folder), fs::metadata(folder)] {
        let metadata = metadata.map_err(text)?;
        if !is_trusted(&metadata) {
            return Err(format!("it belongs to user {}", metadata.uid()));
        }
        if metadata.is_dir() && metadata.mode() & GROUP_AND_OTHERS_WRITE != 0 {
            if metadata.uid() != geteuid().as_raw() || metadata.mode() & STICKY != 0 {
                return Err("other users can write in it".to_owned());
            }
            fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(text)?;
        }
    }
    fs::canonicalize(folder).map_err(text)
}

/// Root can do anything anyway, and root's folder may hold kernels for all users.
fn is_trusted(metadata: &Metadata) -> bool {
    metadata.uid() == geteuid().as_raw() || metadata.uid() == 0
}

/// One file of the cache: `<kind>/<key>-<checksum of its content>.<extension>`, in a folder named
/// after the key's first two digits.
#[derive(Debug)]
pub(crate) struct Entry<'c> {
    cache: &'c Path,
    folder: PathBuf,
    key: String,
    extension: &'static str,
}

impl<'c> Entry<'c> {
    pub(crate) fn new(
        cache: &'c Path,
        kind: &str,
        key: &str,
        extension: &'static str,
    ) -> Entry<'c> {
        let (first, rest) = key.split_at(2);
        Entry {
            cache,
            folder: cache.join(kind).join(first),
            key: rest.to_owned(),
            extension,
        }
    }

    /// The file, if its content matches its name. Files that do not match are removed. Files that
    /// cannot be read now are kept: another process may be about to load them.
    pub(crate) fn find(&self) -> Option<PathBuf> {
        for file in fs::read_dir(&self.folder).ok()?.filter_map(Result::ok) {
            let name = file.file_name();
            let sum = name.to_str().and_then(|name| {
                let rest = name.strip_prefix(&self.key)?.strip_prefix('-')?;
                rest.strip_suffix(self.extension)?.strip_suffix('.')
            });
            let Some(sum) = sum else { continue };
            let path = file.path();
            match contents(&path) {
                Ok(Some(bytes)) if self.sum(&bytes) == sum => return Some(path),
                // If it cannot be removed, the new file replaces it.
                Ok(_) => drop(fs::remove_file(&path)),
                Err(_) => {}
            }
        }
        None
    }

    /// The file, created by `fill` if it does not exist. If two processes create it at once, both
    /// get a complete file.
    pub(crate) fn find_or_make(
        &self,
        fill: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<PathBuf, Error> {
        if let Some(path) = self.find() {
            return Ok(path);
        }
        let scratch = scratch(self.cache)?;
        let made = scratch.path().join("made");
        fill(&made)?;
        let name = format!(
            "{}-{}.{}",
            self.key,
            self.sum(&fs_err::read(&made)?),
            self.extension
        );
        let target = self.folder.join(name);
        place(&made, &target)?;
        Ok(target)
    }

    /// Creates an empty file, to record a fact.
    pub(crate) fn mark(&self) -> Result<(), Error> {
        self.find_or_make(|made| Ok(fs_err::write(made, "")?))
            .map(drop)
    }

    /// Includes the key: the content of one entry under another entry's name is wrong.
    fn sum(&self, bytes: &[u8]) -> String {
        let mut hash = Sha256::new_with_prefix(&self.key);
        hash.update([0]);
        hash.update(bytes);
        short_hex(hash)
    }
}

/// The content of a file. `None` if it is not a regular file, or if another user could have written
/// it.
fn contents(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path);
    let mut file: File = match opened {
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => return Ok(None),
        opened => opened?,
    };
    let metadata = file.metadata()?;
    if !metadata.is_file()
        || !is_trusted(&metadata)
        || metadata.mode() & GROUP_AND_OTHERS_WRITE != 0
    {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
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

/// Makes a file of the cache contain `bytes`, whatever it contained before.
pub(crate) fn keep(cache: &Path, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    if contents(path).is_ok_and(|there| there.as_deref() == Some(bytes)) {
        return Ok(());
    }
    publish_file(cache, path, |made| Ok(fs_err::write(made, bytes)?))
}

/// Lets `fill` write a file and renames it to `target`.
pub(crate) fn publish_file(
    cache: &Path,
    target: &Path,
    fill: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<(), Error> {
    let scratch = scratch(cache)?;
    let made = scratch.path().join("made");
    fill(&made)?;
    place(&made, target)
}

fn place(made: &Path, target: &Path) -> Result<(), Error> {
    // Independent of the umask.
    fs_err::set_permissions(made, Permissions::from_mode(0o600))?;
    if let Some(folder) = target.parent() {
        usable(folder).map_err(|reason| Error::Cache {
            folder: folder.to_owned(),
            reason,
        })?;
    }
    Ok(fs_err::rename(made, target)?)
}

/// A folder in the cache that is deleted when dropped.
pub(crate) fn scratch(cache: &Path) -> Result<tempfile::TempDir, Error> {
    tempfile::Builder::new()
        .prefix("tmp-")
        .tempdir_in(cache)
        .map_err(|error| Error::Cache {
            folder: cache.to_owned(),
            reason: error.to_string(),
        })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, lchown, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    const NOBODY: u32 = 65_534;

    fn cache() -> (tempfile::TempDir, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let folder = prepare(&scratch.path().join("a/cache")).unwrap();
        (scratch, folder)
    }

    fn reason(folder: &Path) -> String {
        prepare(folder).unwrap_err().to_string()
    }

    #[test]
    fn its_folder_is_the_users_own() {
        let (scratch, folder) = cache();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        // Write permission for others is removed from our own folder.
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        prepare(&folder).unwrap();
        assert_eq!(mode(&folder), 0o700);

        let open = scratch.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        let found = reason(&open.join("cache"));
        assert!(found.contains("every user can replace"), "{found}");
        assert!(found.contains(SETTING), "{found}");
        let found = reason(&env::temp_dir());
        assert!(found.contains("other users can write"), "{found}");
        let found = reason(Path::new("/proc/no/cache"));
        assert!(found.contains(SETTING), "{found}");
        let file = scratch.path().join("file");
        fs::write(&file, "").unwrap();
        reason(&file);
    }

    #[test]
    fn who_can_replace_a_folder_is_known_from_the_ones_above() {
        const ME: (u32, u32) = (1000, 1000);
        let risk = |owner, mode| risk_above(owner, mode, ME).unwrap_or_default();
        for owner in [ME, (0, 0)] {
            for mode in [0o700, 0o755, 0o775, 0o1777, 0o1775] {
                assert_eq!(risk(owner, mode), "", "{owner:?} {mode:o}");
            }
            assert_eq!(risk(owner, 0o777), "every user");
        }
        assert_eq!(risk((1000, 100), 0o755), "");
        assert_eq!(risk((1000, 100), 0o775), "group 100");
        assert_eq!(risk((0, 100), 0o775), "group 100");
        assert_eq!(risk((0, 100), 0o1775), "");
        // Many users can share a first group, so its number means nothing.
        let shared = risk_above((1000, 100), 0o775, (1000, 100));
        assert_eq!(shared.as_deref(), Some("group 100"));
        // The owner of a folder can remove anything in it, even if it is sticky.
        for mode in [0o700, 0o755, 0o1777] {
            assert_eq!(risk((1001, 1001), mode), "user 1001", "{mode:o}");
        }
    }

    #[test]
    #[ignore = "only root can give files away: sudo cargo test -p metal-sim --lib -- --ignored"]
    fn a_folder_or_a_link_of_another_user_is_refused() {
        let (scratch, _) = cache();
        let theirs = scratch.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        let link = scratch.path().join("link");
        symlink(&theirs, &link).unwrap();
        assert!(prepare(&link).is_ok());
        lchown(&link, Some(NOBODY), None).unwrap();
        assert!(reason(&link).contains("belongs to user 65534"));
        chown(&theirs, Some(NOBODY), None).unwrap();
        assert!(reason(&theirs).contains("belongs to user 65534"));
        // A folder of ours inside such a folder is refused too.
        let ours = theirs.join("cache");
        assert!(reason(&ours).contains("user 65534 can replace"));
        chown(&theirs, Some(0), Some(NOBODY)).unwrap();
        prepare(&ours).unwrap();
        fs::set_permissions(&theirs, Permissions::from_mode(0o775)).unwrap();
        assert!(reason(&ours).contains("group 65534 can replace"));
    }

    #[test]
    fn home_decides_unless_it_is_no_absolute_path() {
        fn with(set: &[(&str, &str)]) -> PathBuf {
            folder_in(|name| {
                let found = set.iter().find(|(other, _)| *other == name)?;
                Some(PathBuf::from(found.1))
            })
        }
        let home = ("HOME", "/home/u");
        assert_eq!(with(&[("MTL_SIM_CACHE", "/c"), home]), Path::new("/c"));
        assert_eq!(with(&[]), temporary());
        assert_eq!(with(&[("HOME", "")]), temporary());
        assert_eq!(with(&[("HOME", "u")]), temporary());
        let in_home = Path::new("/home/u/.cache/metal-sim");
        assert_eq!(with(&[("MTL_SIM_CACHE", ""), home]), in_home);
        assert_eq!(with(&[("XDG_CACHE_HOME", "x"), home]), in_home);
        assert_eq!(with(&[("XDG_CACHE_HOME", "/x")]), Path::new("/x/metal-sim"));
    }

    #[test]
    fn what_is_damaged_is_made_anew() {
        let (_scratch, folder) = cache();
        let made = std::cell::Cell::new(0);
        let get = |key, text: &str| {
            Entry::new(&folder, "kernel", key, "so").find_or_make(|path| {
                made.set(made.get() + 1);
                Ok(fs_err::write(path, text)?)
            })
        };
        let (a, b) = (get("aa11", "one").unwrap(), get("aa22", "two").unwrap());
        assert_eq!(get("aa11", "one").unwrap(), a);
        assert_eq!(made.get(), 2);
        let damages: [&dyn Fn(); 6] = [
            &|| fs::write(&a, "").unwrap(),
            &|| fs::write(&a, "on").unwrap(),
            &|| assert_eq!(fs::copy(&b, &a).unwrap(), 3),
            &|| {
                // Another entry's content under its own checksum, but our key.
                let name = b.file_name().unwrap().to_str().unwrap();
                fs::copy(&b, a.with_file_name(name.replace("22-", "11-"))).unwrap();
                fs::remove_file(&a).unwrap();
            },
            &|| {
                fs::remove_file(&a).unwrap();
                symlink(&b, &a).unwrap();
            },
            &|| fs::set_permissions(&a, Permissions::from_mode(0o666)).unwrap(),
        ];
        for (i, damage) in damages.iter().enumerate() {
            damage();
            assert_eq!(get("aa11", "one").unwrap(), a, "{i}");
            assert_eq!(fs::read_to_string(&a).unwrap(), "one");
            assert_eq!(made.get(), 3 + i);
        }
        // A file that cannot be read now may still be good, so it is not removed.
        fs::remove_file(&a).unwrap();
        drop(UnixListener::bind(&a).unwrap()); // cannot be opened
        let entry = Entry::new(&folder, "kernel", "aa11", "so");
        assert_eq!(entry.find(), None);
        assert!(fs::symlink_metadata(&a).is_ok());
        assert_eq!(get("aa11", "one").unwrap(), a);
        // A folder in its place is left alone and reported.
        fs::remove_file(&a).unwrap();
        fs::create_dir(&a).unwrap();
        assert!(get("aa11", "one").is_err());
    }

    #[test]
    #[ignore = "only root can give files away: sudo cargo test -p metal-sim --lib -- --ignored"]
    fn what_another_user_wrote_is_not_used() {
        let (_scratch, folder) = cache();
        let entry = Entry::new(&folder, "kernel", "aa11", "so");
        let path = entry
            .find_or_make(|made| Ok(fs_err::write(made, "one")?))
            .unwrap();
        assert_eq!(entry.find(), Some(path.clone()));
        chown(&path, Some(NOBODY), None).unwrap();
        assert_eq!(entry.find(), None);
    }
}
