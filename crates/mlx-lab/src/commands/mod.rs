//! The commands, one module each.

pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod decode;
pub(crate) mod mixed;
pub(crate) mod probe;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use cli::{print, println};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tempfile::NamedTempFile;

/// The exit code of a command that worked and found what it looked for: something differs.
pub(crate) const FOUND: u8 = 3;

/// What a command came to: the code to exit with.
pub(crate) type Outcome = Result<ExitCode>;

/// A progress bar on stderr; indicatif hides it where that is no terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(what: &'static str) -> Self {
        let bar = ProgressBar::no_length();
        if let Ok(style) =
            ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {wide_msg:.dim}")
        {
            bar.set_style(style);
        }
        bar.set_prefix(what);
        Self(bar)
    }

    pub(crate) fn show(&self, done: usize, total: usize) {
        self.0.set_length(total as u64);
        self.0.set_position(done as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Numbers and spans: `1,2,4-8`.
pub(crate) fn numbers(text: &str) -> Result<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let number = |text: &str| {
            text.trim()
                .parse::<usize>()
                .with_context(|| format!("\"{text}\" in \"{}\" is no number", part.trim()))
        };
        match part.split_once('-') {
            None => numbers.push(number(part)?),
            Some((from, to)) => {
                let (from, to) = (number(from)?, number(to)?);
                if from > to || to > 4096 {
                    bail!("\"{part}\" is no span from a number to a greater one, up to 4096");
                }
                numbers.extend(from..=to);
            }
        }
    }
    Ok(numbers)
}

/// [`numbers`] as clap takes it: in one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Numbers(pub(crate) Vec<usize>);

impl std::str::FromStr for Numbers {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        numbers(text).map(Self)
    }
}

/// Prints an outcome for people, or as JSON where that goes to standard output.
pub(crate) fn print<T: Serialize>(
    report: &T,
    json: Option<&Path>,
    render: fn(&T) -> String,
) -> Result<()> {
    let text = || serde_json::to_string_pretty(report).context("JSON");
    match json {
        Some(path) if path.as_os_str() == "-" => println!("{}", text()?),
        Some(path) => {
            write(path, &format!("{}\n", text()?))?;
            print!("{}", render(report));
        }
        None => print!("{}", render(report)),
    }
    Ok(())
}

/// Fails where [`print`] could not write, before there is anything to print.
pub(crate) fn check_json(json: Option<&Path>) -> Result<()> {
    match json {
        Some(path) if path.as_os_str() != "-" => check_writable(path),
        _ => Ok(()),
    }
}

/// Fails where [`write`] would, before there is anything to write.
pub(crate) fn check_writable(path: &Path) -> Result<()> {
    if path.is_dir() {
        bail!("cannot write {}: it is a folder", path.display());
    }
    beside(path).map(drop)
}

/// Writes a file whole or not at all.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let mut file = beside(path)?;
    std::io::Write::write_all(&mut file, text.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.persist(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

/// A file in the same folder, to be renamed.
fn beside(path: &Path) -> Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    tempfile::Builder::new()
        // Others may read it: the umask decides, as for any new file.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .with_context(|| format!("cannot write to {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_leaves_files_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("qmv.toml");
        check_writable(&file).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        std::fs::write(&file, "kept").unwrap();
        check_writable(&file).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
        assert!(check_writable(folder.path()).is_err());
        assert!(check_writable(&folder.path().join("none/qmv.toml")).is_err());
    }

    #[test]
    fn numbers_come_alone_and_in_spans() {
        assert_eq!(numbers("1,3-5, 8").unwrap(), [1, 3, 4, 5, 8]);
        for text in ["", "a", "5-3", "1-", "1-9999999"] {
            assert!(numbers(text).is_err(), "{text}");
        }
    }

    /// As a file has that was made without a temporary one: its readers may be other users.
    #[cfg(unix)]
    #[test]
    fn files_have_the_permissions_of_new_ones() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let [ours, plain] = ["ours", "plain"].map(|name| folder.path().join(name));
        write(&ours, "text").unwrap();
        std::fs::write(&plain, "text").unwrap();
        let mode = |path| std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&plain));
    }
}
