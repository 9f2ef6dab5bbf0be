//! The log of a CMake run: written to a file, shown as a progress bar, searched after a failure.

use std::io::Write;

use anyhow::Result;
use camino::Utf8Path;
use cli::Progress;
use fs_err::File;

/// `NINJA_STATUS` for the child, in place of the user's own: [`ninja_step`] reads it.
pub(super) const NINJA_STATUS: &str = "[%f/%t] ";

/// How many lines of a failing log are shown.
const SHOWN: usize = 16;

pub(super) struct Log {
    file: File,
    progress: Progress,
}

impl Log {
    /// Starts a log at `path`. The bar is drawn on standard error, only on a terminal.
    pub(super) fn create(path: &Utf8Path) -> Result<Self> {
        let file = File::create(path)?;
        let progress = Progress::counted("MLX");
        progress.detail("configuring");
        Ok(Self { file, progress })
    }

    /// Writes one line of output. It is not buffered, so that the log can be followed and survives a kill.
    pub(super) fn line(&mut self, line: &str) -> Result<()> {
        writeln!(self.file, "{line}")?;
        if let Some((done, total, text)) = ninja_step(line) {
            self.progress.count(done, total);
            self.progress
                .detail(text.rsplit('/').next().unwrap_or(text));
        } else if line.starts_with("-- Build files have been written") {
            // Ninja names a file when it is done; the first takes a while.
            self.progress.detail("compiling the first files");
        } else if let Some(found) = line.strip_prefix("-- ") {
            self.progress.detail(found);
        }
        Ok(())
    }
}

/// Splits `[12/345] Building x.o` into numbers and text.
fn ninja_step(line: &str) -> Option<(usize, usize, &str)> {
    let (numbers, text) = line.strip_prefix('[')?.split_once("] ")?;
    let (done, total) = numbers.split_once('/')?;
    Some((done.parse().ok()?, total.parse().ok()?, text))
}

/// The relevant part of a failing log, and what to do if the cause is a known one.
pub(super) fn diagnose(text: &str) -> String {
    const KNOWN: [(&[&str], &str); 3] = [
        (
            &[
                "Could NOT find LAPACK",
                "Could NOT find BLAS",
                "lapacke.h",
                "cblas.h",
            ],
            "BLAS or LAPACK is missing: `apt-get install -y libopenblas-dev liblapacke-dev`, or \
             `cargo xtask quickstart --backend cpu --install-deps`",
        ),
        (
            &[
                "missing Metal Toolchain",
                "unable to find utility \"metal\"",
            ],
            "Xcode's Metal compiler is missing: `xcodebuild -downloadComponent MetalToolchain`",
        ),
        (
            &["No space left on device"],
            "the disk is full: a build needs about 1 GB; free some space and build again",
        ),
    ];
    let lines: Vec<&str> = text.lines().collect();
    let start = lines
        .iter()
        .position(|line| line.starts_with("CMake Error") || line.starts_with("FAILED: "))
        .unwrap_or_else(|| lines.len().saturating_sub(SHOWN));
    let excerpt = &lines[start..lines.len().min(start + SHOWN)];
    let mut result = excerpt
        .iter()
        .map(|line| format!("  | {line}"))
        .collect::<Vec<_>>();
    let reason = excerpt.join("\n");
    for (signs, advice) in KNOWN {
        if signs.iter().any(|sign| reason.contains(sign)) {
            result.push(advice.to_owned());
        }
    }
    result.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninja_lines_are_progress_and_others_are_not() {
        let line = "[3/272] Building CXX object a/b.cpp.o";
        assert_eq!(
            ninja_step(line),
            Some((3, 272, "Building CXX object a/b.cpp.o"))
        );
        for line in ["-- Found BLAS", "[ 3%] x", "[1/x] y", "[1/2]"] {
            assert_eq!(ninja_step(line), None, "{line}");
        }
    }

    #[test]
    fn a_failure_is_found_in_the_middle_and_explained() {
        let mut log = "[1/9] ok\n".repeat(50);
        log += "FAILED: x.o\n/usr/bin/c++ x\nx.cpp:1:10: fatal error: lapacke.h: No such file\n";
        log += "[2/9] still running\n";
        let text = diagnose(&log);
        assert!(text.starts_with("  | FAILED: x.o\n"), "{text}");
        assert!(text.contains("liblapacke-dev"), "{text}");
    }

    #[test]
    fn a_log_without_a_marker_shows_its_end() {
        let log = (0..100).map(|i| format!("line {i}\n")).collect::<String>();
        let text = diagnose(&log);
        assert!(
            text.starts_with("  | line 84\n") && text.ends_with("  | line 99"),
            "{text}"
        );
    }
}
