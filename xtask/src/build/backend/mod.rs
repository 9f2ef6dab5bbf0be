//! The back-ends: the CMake configuration of each, one per module.

mod configuration;
mod cpu;
pub(crate) mod metal;
mod sim;

use anyhow::Result;
use camino::Utf8PathBuf;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use mlx_prefix::Backend;

pub use configuration::{Configuration, Options};

use crate::host::{Host, Os};

/// Parses `--backend`.
pub(crate) fn parser() -> impl TypedValueParser<Value = Backend> {
    let values = Backend::ALL.map(|backend| {
        PossibleValue::new(backend.name()).help(match backend {
            Backend::Cpu => "The CPU back-end only (Linux; uses the system's BLAS and LAPACK)",
            Backend::Metal => "Apple GPUs and the CPU back-end (macOS)",
            Backend::Sim => "The Metal back-end on a simulated device (Linux)",
        })
    });
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Backend>())
}

/// The default back-end on `host`.
pub fn default_for(host: &Host) -> Backend {
    match host.os {
        Os::Linux => Backend::Sim,
        Os::MacOs => Backend::Metal,
    }
}

/// The CMake variables that make a back-end's build use the pinned inputs from their unpacked folders. `find` returns
/// the folder for a name in `mlx.toml`.
pub(crate) fn input_folders(
    backend: Backend,
    find: &dyn Fn(&str) -> Result<Utf8PathBuf>,
) -> Result<Vec<(String, String)>> {
    let inputs: &[&str] = match backend {
        Backend::Metal => &["fmt", "json", "metal-cpp"],
        // The simulated device has its own headers.
        Backend::Cpu | Backend::Sim => &["fmt", "json"],
    };
    inputs
        .iter()
        .map(|name| Ok((folder_variable(name), find(name)?.into_string())))
        .collect()
}

/// The CMake configuration of a back-end on `host`.
pub(crate) fn configure(host: &Host, options: Options) -> Result<Configuration> {
    match options.backend {
        Backend::Cpu => cpu::configure(host, options),
        Backend::Metal => metal::configure(host, options),
        Backend::Sim => sim::configure(host, options),
    }
}

/// The CMake variable that makes FetchContent use a folder for a dependency.
pub(crate) fn folder_variable(name: &str) -> String {
    let name = name.to_uppercase().replace('-', "_");
    format!("FETCHCONTENT_SOURCE_DIR_{name}")
}

/// The host with one deployment target in its environment, so that cargo, rustc and the build that they start agree.
/// Linux has none.
pub fn with_deployment_target(host: Host) -> Result<Host> {
    match host.os {
        Os::Linux => Ok(host),
        Os::MacOs => {
            let target = metal::deployment_target(&host)?;
            Ok(host.with("MACOSX_DEPLOYMENT_TARGET", target))
        }
    }
}
