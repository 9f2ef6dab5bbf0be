//! The back-ends: the CMake configuration of each, one per module.

mod configuration;
mod cpu;
mod cuda;
pub(crate) mod metal;
mod sim;

use anyhow::Result;
use camino::Utf8PathBuf;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use mlx_prefix::Backend;

pub use configuration::{Configuration, Options};
pub(crate) use cuda::{ARCHITECTURES, VARIABLES as CUDA_VARIABLES};

use crate::host::{Host, Os};

/// Parses `--backend`.
pub(crate) fn parser() -> impl TypedValueParser<Value = Backend> {
    let values = Backend::ALL.map(|backend| {
        PossibleValue::new(backend.name()).help(match backend {
            Backend::Cpu => "Only the CPU back-end (Linux; BLAS and LAPACK of the system)",
            Backend::Cuda => "NVIDIA's GPUs, as a shared library (Linux; nvcc and cuDNN)",
            Backend::Metal => "Apple's GPUs, with the CPU back-end (macOS)",
            Backend::Sim => "The Metal back-end on a simulated device (Linux)",
        })
    });
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Backend>())
}

/// Parses `--cuda-architectures`: the syntax of CMake's CUDA_ARCHITECTURES, with commas or semicolons.
pub(crate) fn cuda_architectures(text: &str) -> Result<String, String> {
    let list: Vec<_> = text.split([',', ';']).collect();
    let known = |one: &&str| {
        let number = one.trim_end_matches("-real").trim_end_matches("-virtual");
        let digits = number.trim_end_matches(['a', 'f']);
        (2..=3).contains(&digits.len())
            && number.len() <= digits.len() + 1
            && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    match list.iter().find(|one| !known(one)) {
        Some(other) => Err(format!(
            "`{other}` is not an architecture: expected a compute capability without its dot, such as 80, 90a or 120a"
        )),
        None => Ok(list.join(";")),
    }
}

/// The back-end that `host` builds by default.
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
        Backend::Cuda => &["fmt", "json", "cutlass", "cccl", "nvtx3", "cudnn-frontend"],
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
pub(crate) fn configure(host: &Host, options: &Options) -> Result<Configuration> {
    match options.backend {
        Backend::Cpu => cpu::configure(host, options),
        Backend::Cuda => cuda::configure(host, options),
        Backend::Metal => metal::configure(host, options),
        Backend::Sim => sim::configure(host, options),
    }
}

/// The CMake variable that makes FetchContent use a folder for a dependency.
pub(crate) fn folder_variable(name: &str) -> String {
    let name = match name {
        // MLX uses this name.
        "cudnn-frontend" => "CUDNN".to_owned(),
        _ => name.to_uppercase().replace('-', "_"),
    };
    format!("FETCHCONTENT_SOURCE_DIR_{name}")
}

/// Sets the deployment target in the host's environment, so that cargo, rustc and the build that they start use the same
/// one. Linux has none.
pub fn with_deployment_target(host: Host) -> Result<Host> {
    match host.os {
        Os::Linux => Ok(host),
        Os::MacOs => {
            let target = metal::deployment_target(&host)?;
            Ok(host.with("MACOSX_DEPLOYMENT_TARGET", target))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_compute_capabilities() {
        let read = cuda_architectures;
        assert_eq!(read("90a").as_deref(), Ok("90a"));
        assert_eq!(
            read("80-real,90a;120f-virtual").as_deref(),
            Ok("80-real;90a;120f-virtual")
        );
        for bad in ["", "9", "90aa", "sm_90", "native", "90a,", "90a -x"] {
            let error = read(bad).unwrap_err();
            assert!(error.contains("such as 80, 90a"), "{error}");
        }
    }
}
