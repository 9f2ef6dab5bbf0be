//! The one place that runs CMake.
//!
//! The cmake crate is made for build scripts: it panics if a command fails, and it prints lines for cargo. So it runs
//! in a child process, the hidden subcommand `run-cmake`. The child's output is the build's log; the parent shows
//! progress from it and turns a failure into one error.

use std::fs::File;
use std::panic;

use anyhow::{Context, Result, anyhow, bail};
use camino::{Utf8Path, Utf8PathBuf};
use patchset::{Workspace, project};
use serde::{Deserialize, Serialize};

use super::log::{self, Log};
use crate::host::Host;
use crate::progress::Line;

/// One run of CMake: configure, build, install.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The folder of the top-level `CMakeLists.txt`.
    pub source: Utf8PathBuf,
    /// The folder that will contain `build`.
    pub out: Utf8PathBuf,
    /// The root of the install (`DESTDIR`).
    pub stage: Utf8PathBuf,
    /// The workspace whose `vendor/` must not change during the build.
    pub workspace: Utf8PathBuf,
    pub target: String,
    pub defines: Vec<(String, String)>,
}

/// Arguments of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A file that describes the run as JSON.
    request: Utf8PathBuf,
}

/// The child process: runs only the cmake crate.
pub fn run(args: Args) -> Result<()> {
    let text = fs_err::read_to_string(&args.request)?;
    let run: Run = serde_json::from_str(&text).with_context(|| {
        format!(
            "{} is not a description of a CMake run that this program wrote",
            args.request
        )
    })?;
    // The parent holds this lock too. If the parent is killed, the tree still must not be swapped while CMake runs.
    let line = Line::new();
    let _held = project::hold(&Workspace::at(&run.workspace), &|event| line.show(event))?;
    drop(line);
    // The panic's text is part of the error below; a backtrace inside the crate does not help.
    panic::set_hook(Box::new(|_| {}));
    let outcome = panic::catch_unwind(|| {
        let mut config = cmake::Config::new(&run.source);
        for (name, value) in &run.defines {
            config.define(name, value);
        }
        config
            .out_dir(&run.out)
            .env("DESTDIR", &run.stage)
            .target(&run.target)
            .host(&run.target)
            .profile("Release")
            .generator("Ninja")
            // The crate's own flags (-w, -march=…) would make a different library from upstream's.
            .no_default_flags(true)
            .build();
    });
    outcome.map_err(|payload| {
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("the cmake crate panicked");
        anyhow!(
            "{}",
            text.replace("build script failed, must exit now", "")
                .trim()
                .to_owned()
        )
    })
}

/// The parent process: starts the child `xtask run-cmake` on `host` and writes its output to `log_path`. The child,
/// CMake and Ninja hold `lock` until they end, even if this process is killed.
pub fn drive(
    host: &Host,
    xtask: &Utf8Path,
    run: &Run,
    log_path: &Utf8Path,
    lock: &File,
) -> Result<()> {
    let request = run.out.join("cmake-run.json");
    fs_err::write(&request, serde_json::to_string_pretty(run)?)?;
    let mut log = Log::create(log_path, run.out.join("build"))?;
    let status = host
        .cmd(xtask.as_str())
        .args(["run-cmake", request.as_str()])
        .holding(lock)?
        .stream(|line| log.line(line))?;
    drop(log);
    if status.success() {
        return Ok(());
    }
    let text = fs_err::read_to_string(log_path)?;
    bail!(
        "building MLX failed; the complete log is {log_path}\n{}",
        log::diagnose(&text)
    );
}
