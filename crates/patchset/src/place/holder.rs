//! A lock whose file names its holders, so that a waiting process can print whom it waits for and since when.
//!
//! The kernel's lock decides; the file's content is for people. Each holder has a line in it while it holds the lock. A
//! line of a process that has ended is ignored.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use rustix::process::{Pid, test_kill_process};

/// The kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// For one process, which changes what the lock protects.
    Alone,
    /// For any number of processes.
    Shared,
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct Held {
    file: File,
    path: Utf8PathBuf,
    /// The position and length of this process's line; `None` if the file cannot be written.
    line: Option<(u64, usize)>,
}

impl Held {
    /// Locks an open file. If it is not free, `waits` is first called with a description of the holders.
    ///
    /// # Errors
    /// The file system does not support locks.
    pub fn take(
        file: File,
        path: &Utf8Path,
        kind: Kind,
        waits: impl FnOnce(&str),
    ) -> io::Result<Self> {
        let tried = match kind {
            Kind::Alone => file.try_lock(),
            Kind::Shared => file.try_lock_shared(),
        };
        match (tried, kind) {
            (Ok(()), _) => {}
            (Err(TryLockError::Error(error)), _) => return Err(error),
            (Err(TryLockError::WouldBlock), kind) => {
                waits(&format!("waiting for {}", told(path)));
                match kind {
                    Kind::Alone => file.lock()?,
                    Kind::Shared => file.lock_shared()?,
                }
            }
        }
        let path = path.to_owned();
        let line = sign(&path, kind).ok();
        Ok(Self { file, path, line })
    }

    /// The locked file, for a child process that must hold the lock too.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn wipe(&self, (start, length): (u64, usize)) -> io::Result<()> {
        // A file of blank lines is truncated at this length.
        const LONG: u64 = 4096;
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.path)?;
        let file = file.file();
        file.write_all_at(&vec![b' '; length.saturating_sub(1)], start)?;
        if file.metadata()?.len() > LONG && read(&self.path).is_empty() {
            file.set_len(0)?;
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A line that remains counts until this process ends; the lock itself is released in any case.
        let _ = self.line.map(|line| self.wipe(line));
    }
}

/// Adds this process's line.
fn sign(path: &Utf8Path, kind: Kind) -> io::Result<(u64, usize)> {
    let mut file = fs::OpenOptions::new().append(true).open(path)?;
    if kind == Kind::Alone {
        file.set_len(0)?;
    }
    let line = Holder::this().to_line();
    file.write_all(line.as_bytes())?;
    let end = file.file_mut().stream_position()?;
    Ok((end.saturating_sub(line.len() as u64), line.len()))
}

/// A process that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub process: i32,
    /// Its command line.
    pub command: String,
    /// Start time in seconds since 1970.
    pub since: u64,
}

impl Holder {
    fn this() -> Self {
        const LONGEST: usize = 200;
        let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let program = words.next().unwrap_or_default();
        let program = Utf8Path::new(&program).file_name().unwrap_or(&program);
        // An address may contain a password, and other users can read the file.
        let words = words.map(|word| match word.contains("://") {
            true => "…".to_owned(),
            false => word,
        });
        let command = std::iter::once(program.to_owned()).chain(words);
        let command = command.collect::<Vec<_>>().join(" ");
        let command = command.split_whitespace().collect::<Vec<_>>().join(" ");
        Self {
            process: std::process::id().cast_signed(),
            command: command.chars().take(LONGEST).collect(),
            since: now(),
        }
    }

    fn to_line(&self) -> String {
        format!("{} {} {}\n", self.process, self.since, self.command)
    }

    fn from_line(line: &str) -> Option<Self> {
        let mut words = line.trim_matches(['\0', ' ']).splitn(3, ' ');
        Some(Self {
            process: words.next()?.parse().ok()?,
            since: words.next()?.parse().ok()?,
            command: words.next()?.to_owned(),
        })
    }

    fn is_alive(&self) -> bool {
        // A process of another user may not be signalled, but it exists.
        let alive = |process| test_kill_process(process) != Err(rustix::io::Errno::SRCH);
        Pid::from_raw(self.process).is_some_and(alive)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            process,
            command,
            since,
        } = self;
        let (hour, minute, second) = (since / 3600 % 24, since / 60 % 60, since % 60);
        let seconds = now().saturating_sub(*since);
        let ago = match seconds {
            0..120 => format!("{seconds} s"),
            120..7200 => format!("{} min", seconds / 60),
            _ => format!("{} h", seconds / 3600),
        };
        write!(
            f,
            "`{command}` (process {process}, since {hour:02}:{minute:02}:{second:02} UTC, {ago} ago)"
        )
    }
}

/// The holders of the lock according to its file; the kernel is not asked.
fn read(path: &Utf8Path) -> Vec<Holder> {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let holders = text.lines().filter_map(Holder::from_line);
    holders.filter(Holder::is_alive).collect()
}

/// The holders of a lock that another process could not take alone now; `None` if it is free.
///
/// # Errors
/// The lock's file cannot be opened.
pub fn of(path: &Utf8Path, kind: Kind) -> io::Result<Option<String>> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?.into_parts().0,
    };
    let tried = match kind {
        Kind::Alone => file.try_lock(),
        Kind::Shared => file.try_lock_shared(),
    };
    Ok(matches!(tried, Err(TryLockError::WouldBlock)).then(|| told(path)))
}

/// A description of the holders and the lock.
fn told(path: &Utf8Path) -> String {
    let holders: Vec<_> = read(path).iter().map(ToString::to_string).collect();
    match &holders[..] {
        // A child keeps a lock that it was given.
        [] => format!("a program that holds {path} (started by a run that has ended)"),
        holders => format!("{}, which holds {path}", holders.join(" and ")),
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock() -> (tempfile::TempDir, Utf8PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(folder.path()).unwrap().join("lock");
        fs::write(&path, "").unwrap();
        (folder, path)
    }

    fn take(path: &Utf8Path, kind: Kind) -> Held {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        Held::take(file.into_parts().0, path, kind, |text| panic!("{text}")).unwrap()
    }

    #[test]
    fn holders_are_named_while_they_hold_it() {
        let (_folder, path) = lock();
        assert_eq!(of(&path, Kind::Alone).unwrap(), None);
        for kind in [Kind::Alone, Kind::Shared] {
            let held = take(&path, kind);
            let this = format!("(process {}, since ", std::process::id());
            let told = of(&path, Kind::Alone).unwrap().unwrap();
            assert!(told.contains(&this), "{told}");
            drop(held);
            assert_eq!(of(&path, Kind::Alone).unwrap(), None);
            assert_eq!(read(&path), []);
        }
        let (one, other) = (take(&path, Kind::Shared), take(&path, Kind::Shared));
        assert_eq!(read(&path).len(), 2);
        assert_eq!(
            of(&path, Kind::Shared).unwrap(),
            None,
            "readers do not wait for each other"
        );
        drop(one);
        assert_eq!(read(&path).len(), 1);
        drop(other);
        assert_eq!(read(&path), []);
    }

    #[test]
    fn the_file_does_not_grow_for_ever() {
        let (_folder, path) = lock();
        for _ in 0..200 {
            drop(take(&path, Kind::Shared));
        }
        assert!(fs::metadata(&path).unwrap().len() < 8192);
    }

    #[test]
    fn a_process_that_is_gone_is_not_named() {
        let (_folder, path) = lock();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let gone = Holder {
            process: child.id().cast_signed(),
            command: "xtask build".into(),
            since: 1,
        };
        fs::write(&path, format!("{}\0\0 \nnonsense\n", gone.to_line())).unwrap();
        assert_eq!(read(&path), []);
        // The process that it started keeps the lock.
        let file = fs::File::open(&path).unwrap();
        file.file().lock().unwrap();
        let told = of(&path, Kind::Shared).unwrap().unwrap();
        assert!(told.contains("started by a run that has ended"), "{told}");
    }
}
