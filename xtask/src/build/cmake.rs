//! The one place that runs CMake.
//!
//! The cmake crate is made for build scripts: it panics where a command fails and prints lines for
//! cargo. So it runs in a child, this program's own hidden subcommand `run-cmake`, whose whole output
//! becomes the build's log; the parent shows progress from it and turns a failure into one error.

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
    /// The folder with the top `CMakeLists.txt`.
    pub source: Utf8PathBuf,
    /// The folder that gets `build` below it.
    pub out: Utf8PathBuf,
    /// The folder that stands for `/` in the install (`DESTDIR`).
    pub stage: Utf8PathBuf,
    /// The workspace whose `vendor/` is not to be changed meanwhile.
    pub workspace: Utf8PathBuf,
    /// The target triple.
    pub target: String,
    /// `-D` options.
    pub defines: Vec<(String, String)>,
}

/// Arguments of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A file with the run as JSON.
    request: Utf8PathBuf,
}

/// The child's side: runs the cmake crate and nothing else.
pub fn run(args: Args) -> Result<()> {
    let text = fs_err::read_to_string(&args.request)?;
    let run: Run = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a CMake run of this program", args.request))?;
    // As the parent does: where that one is killed, no other run may swap the tree under CMake.
    let line = Line::new();
    let _held = project::hold(&Workspace::at(&run.workspace), &|event| line.show(event))?;
    drop(line);
    // The panic's text goes into the error below; a backtrace of the crate's inside helps nobody.
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
            // The crate's own flags (-w, -march=…) would make this another library than upstream's.
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

/// The parent's side: starts the child `xtask run-cmake` on `host`, whose output goes to `log_path`.
/// The child, CMake and Ninja hold `lock` to their end, also where this process is killed.
pub fn drive(
    host: &Host,
    xtask: &Utf8Path,
    run: &Run,
    log_path: &Utf8Path,
    lock: &File,
) -> Result<()> {
    let request = run.out.join("cmake-run.json");
    fs_err::write(&request, serde_json::to_string_pretty(run)?)?;
    let mut log = Log::create(log_path)?;
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
        "building MLX failed; the whole log is {log_path}\n{}",
        log::diagnose(&text)
    );
}
