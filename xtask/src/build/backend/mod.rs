//! The back-ends: what each one asks of CMake. One module each; nothing else differs between them.

mod cpu;
pub(crate) mod metal;
mod sim;

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;
use camino::Utf8PathBuf;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::Usage;
use crate::host::{Host, Os};

/// Which of MLX's back-ends is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The CPU back-end alone (Linux; BLAS and LAPACK of the system).
    Cpu,
    /// Apple's GPUs, with the CPU back-end (macOS).
    Metal,
    /// The Metal back-end on a simulated device (Linux).
    Sim,
}

/// The choices of a build that change what comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The back-end.
    pub backend: Backend,
    /// Include the CPU back-end where a back-end leaves the choice.
    pub cpu: bool,
    /// Compile Metal kernels from their source at run time instead of ahead of time.
    pub jit: bool,
}

impl Options {
    /// Refuses choices that exclude each other.
    pub(crate) fn check(self) -> Result<(), Usage> {
        if self.jit && self.backend == Backend::Cpu {
            let text = "--jit chooses how Metal kernels are compiled; the cpu back-end has none";
            return Err(Usage(text.to_owned()));
        }
        Ok(())
    }
}

/// What a back-end adds to the CMake run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    /// `-D` options, in order; the later one of a name wins.
    pub defines: Vec<(String, String)>,
    /// `-D` options that name files of this workspace: no part of the build's key.
    pub paths: Vec<(String, Utf8PathBuf)>,
    /// Environment variables of the CMake and Ninja processes.
    pub env: BTreeMap<String, String>,
    /// A folder that stands first on their `PATH`.
    pub path_first: Option<Utf8PathBuf>,
    /// Versions of further tools that the result depends on (they enter the build's key).
    pub tools: BTreeMap<String, String>,
    /// Whether the CPU back-end is part of the library.
    pub cpu: bool,
    /// Whether a metallib is built. It lands in the prefix's library folder, and that path is
    /// compiled into the library as the last place where it looks.
    pub metallib: bool,
    /// The oldest macOS that C++, Metal and Rust code are built for.
    pub deployment_target: Option<String>,
    /// The compiler's run-time library, which Rust's own linking leaves out: MLX's
    /// `__builtin_available` needs `___isPlatformVersionAtLeast` from it.
    pub clang_rt: Option<Utf8PathBuf>,
}

impl Configuration {
    fn define(&mut self, name: &str, value: impl Into<String>) {
        self.defines.push((name.to_owned(), value.into()));
    }

    fn switch(&mut self, name: &str, on: bool) {
        self.define(name, if on { "ON" } else { "OFF" });
    }
}

impl Backend {
    /// The back-end that `host` builds unless told otherwise.
    pub fn default_for(host: &Host) -> Self {
        match host.os {
            Os::Linux => Self::Sim,
            Os::MacOs => Self::Metal,
        }
    }

    /// The pinned inputs that MLX's build reads, by their names in `mlx.toml`.
    fn inputs(self) -> &'static [&'static str] {
        match self {
            Self::Metal => &["fmt", "json", "metal-cpp"],
            // The simulated device brings its own headers.
            Self::Cpu | Self::Sim => &["fmt", "json"],
        }
    }

    /// The CMake variables that have the inputs taken from their unpacked folders, which `find` knows by name.
    pub(crate) fn input_folders(
        self,
        find: &dyn Fn(&str) -> Result<Utf8PathBuf>,
    ) -> Result<Vec<(String, String)>> {
        let inputs = self.inputs().iter();
        inputs
            .map(|name| Ok((folder_variable(name), find(name)?.into_string())))
            .collect()
    }

    /// What this back-end asks of CMake on `host`.
    pub fn configure(self, host: &Host, options: Options) -> Result<Configuration> {
        match self {
            Self::Cpu => cpu::configure(host, options),
            Self::Metal => metal::configure(host, options),
            Self::Sim => sim::configure(host, options),
        }
    }
}

/// The CMake variable that has FetchContent take a dependency from a folder.
pub(crate) fn folder_variable(name: &str) -> String {
    let name = name.to_uppercase().replace('-', "_");
    format!("FETCHCONTENT_SOURCE_DIR_{name}")
}

/// The host with the one deployment target in its environment, so that cargo, rustc and the build
/// started from it agree. On Linux there is none.
pub fn with_deployment_target(host: Host) -> Result<Host> {
    match host.os {
        Os::Linux => Ok(host),
        Os::MacOs => {
            let target = metal::deployment_target(&host)?;
            Ok(host.with("MACOSX_DEPLOYMENT_TARGET", target))
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Metal => "metal",
            Self::Sim => "sim",
        })
    }
}
