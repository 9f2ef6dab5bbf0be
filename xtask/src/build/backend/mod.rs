//! The back-ends: what each one asks of CMake. One module each; nothing else differs between them.

mod cpu;
pub(crate) mod metal;
mod sim;

use std::collections::BTreeMap;

use anyhow::Result;
use camino::Utf8PathBuf;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use mlx_prefix::Backend;

use crate::Usage;
use crate::host::{Host, Os};

/// Parses `--backend`.
pub(crate) fn parser() -> impl TypedValueParser<Value = Backend> {
    let values = Backend::ALL.map(|backend| {
        PossibleValue::new(backend.name()).help(match backend {
            Backend::Cpu => "The CPU back-end alone (Linux; BLAS and LAPACK of the system)",
            Backend::Metal => "Apple's GPUs, with the CPU back-end (macOS)",
            Backend::Sim => "The Metal back-end on a simulated device (Linux)",
        })
    });
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Backend>())
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

/// The back-end that `host` builds unless another is asked for.
pub fn default_for(host: &Host) -> Backend {
    match host.os {
        Os::Linux => Backend::Sim,
        Os::MacOs => Backend::Metal,
    }
}

/// The CMake variables that have the pinned inputs of a back-end's build taken from their unpacked folders, which `find`
/// knows by their names in `mlx.toml`.
pub(crate) fn input_folders(
    backend: Backend,
    find: &dyn Fn(&str) -> Result<Utf8PathBuf>,
) -> Result<Vec<(String, String)>> {
    let inputs: &[&str] = match backend {
        Backend::Metal => &["fmt", "json", "metal-cpp"],
        // The simulated device brings its own headers.
        Backend::Cpu | Backend::Sim => &["fmt", "json"],
    };
    inputs
        .iter()
        .map(|name| Ok((folder_variable(name), find(name)?.into_string())))
        .collect()
}

/// What a back-end asks of CMake on `host`.
pub(crate) fn configure(host: &Host, options: Options) -> Result<Configuration> {
    match options.backend {
        Backend::Cpu => cpu::configure(host, options),
        Backend::Metal => metal::configure(host, options),
        Backend::Sim => sim::configure(host, options),
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
