//! The log of a CMake run: written to a file, shown as progress, searched after a failure.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};
use cli::Progress;
use fs_err::File;

use super::running;

/// `NINJA_STATUS` for the child, in place of the user's own: [`ninja_step`] reads it.
pub(super) const NINJA_STATUS: &str = "[%f/%t] ";

/// How many lines of a failing log are shown.
const SHOWN: usize = 16;

pub(super) struct Log {
    file: File,
    build: Utf8PathBuf,
    progress: Progress,
    compiling: Arc<AtomicBool>,
}

impl Log {
    /// Starts a log at `path` of a build in `build`. Standard error shows the step and the files in work.
    pub(super) fn create(path: &Utf8Path, build: Utf8PathBuf) -> Result<Self> {
        let file = File::create(path)?;
        let compiling = Arc::new(AtomicBool::new(false));
        let begun = Arc::clone(&compiling);
        // Before that CMake names what it looks for.
        let progress = Progress::watching("MLX", move || {
            begun.load(Ordering::Relaxed).then(running::files)
        });
        progress.step("configuring MLX");
        Ok(Self {
            file,
            build,
            progress,
            compiling,
        })
    }

    /// Writes one line of output. It is not buffered, so that the log can be followed and survives a kill.
    pub(super) fn line(&mut self, line: &str) -> Result<()> {
        writeln!(self.file, "{line}")?;
        if let Some((done, total)) = ninja_step(line) {
            self.progress.count(done, total);
        } else if line.starts_with("-- Build files have been written") {
            // Ninja prints the number when the first file is done. If it has run here before, not all are compiled.
            if !self.build.join(".ninja_log").exists() {
                let plan = fs_err::read_to_string(self.build.join("build.ninja"));
                self.progress.count(0, steps(&plan.unwrap_or_default()));
            }
            self.progress.step("compiling MLX");
            self.compiling.store(true, Ordering::Relaxed);
        } else if let Some(found) = line.strip_prefix("-- ") {
            self.progress.detail(found);
        }
        Ok(())
    }
}

/// The number of steps of a whole build with `plan`, CMake's `build.ninja`.
fn steps(plan: &str) -> usize {
    const OTHERS: [&str; 4] = ["phony", "CLEAN", "HELP", "RERUN_CMAKE"];
    let files = plan.lines().filter_map(|line| {
        let (outputs, rule) = line.strip_prefix("build ")?.split_once(": ")?;
        let rule = rule.split(' ').next()?;
        // A utility is a target of its own; the installation is the only one that is asked for.
        (!outputs.ends_with(".util") && !OTHERS.contains(&rule)).then_some(())
    });
    files.count() + 1
}

/// The numbers in `[12/345] Building x.o`.
fn ninja_step(line: &str) -> Option<(usize, usize)> {
    let (numbers, _) = line.strip_prefix('[')?.split_once("] ")?;
    let (done, total) = numbers.split_once('/')?;
    Some((done.parse().ok()?, total.parse().ok()?))
}

/// The relevant part of a failing log, and the remedy if the cause is a known one.
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
        assert_eq!(ninja_step(line), Some((3, 272)));
        for line in ["-- Found BLAS", "[ 3%] x", "[1/x] y", "[1/2]"] {
            assert_eq!(ninja_step(line), None, "{line}");
        }
    }

    #[test]
    fn the_steps_are_those_that_an_installation_needs() {
        let plan = "
build cmake_object_order_depends_target_mlx: phony || a
build CMakeFiles/mlx.dir/a.cpp.o: CXX_COMPILER__mlx_Release /a$ b/a.cpp || x
  FLAGS = -O3
build libmlx.a: CXX_STATIC_LIBRARY_LINKER__mlx_Release CMakeFiles/mlx.dir/a.cpp.o
build k.air | ${cmake_ninja_workdir}k.air: CUSTOM_COMMAND k.metal
build CMakeFiles/install.util: CUSTOM_COMMAND all
build build.ninja: RERUN_CMAKE | CMakeCache.txt
build clean: CLEAN
build help: HELP
";
        assert_eq!(steps(plan), 4);
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
