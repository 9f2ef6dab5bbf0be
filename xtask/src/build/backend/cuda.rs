//! The CUDA back-end on Linux.
//!
//! It is a shared library. The code that it compiles at run time includes headers of cutlass and CCCL, which it looks for
//! in `../include` from its own file. A static library would look next to each program.

use anyhow::{Result, anyhow, bail};

use super::configuration::{Configuration, Options};
use crate::build::flags::UnsafeFlag;
use crate::host::{Host, Os};
use crate::requirements::{self, cuda};

/// Variables that CMake, nvcc and MLX's CUDA build read.
pub(crate) const VARIABLES: [&str; 6] = [
    "CUDACXX",
    "CUDAFLAGS",
    "CUDAHOSTCXX",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
    "NVCC_PREPEND_FLAGS",
];

pub(super) fn configure(host: &Host, options: &Options) -> Result<Configuration> {
    if host.os != Os::Linux {
        bail!("the cuda back-end can be built only on Linux");
    }
    for variable in VARIABLES {
        if let Some(found) = UnsafeFlag::find_in(host, variable) {
            bail!("{found}; {}", found.remedy());
        }
    }
    let (nvcc, cudnn) = match (cuda::nvcc(host), cuda::cudnn(host)) {
        (Ok(nvcc), Ok(cudnn)) if cuda::missing(host, options.cpu).is_empty() => (nvcc, cudnn),
        _ => bail!(
            "{}",
            requirements::report(host, &cuda::missing(host, options.cpu))
        ),
    };
    let architectures = match &options.cuda_architectures {
        Some(list) => list.clone(),
        None => cuda::architectures(host, &nvcc).map_err(|why| {
            anyhow!(
                "the architecture to compile for is unknown, because no NVIDIA GPU was found ({why}); name it, as in `cargo xtask build \
                 --backend cuda --cuda-architectures 90a` (80 for an A100, 90a for an H100 or H200, 100a for a B200, \
                 120a for an RTX 50)"
            )
        })?,
    };

    let mut configuration = Configuration {
        cpu: options.cpu,
        ..Configuration::default()
    };
    configuration.switch("BUILD_SHARED_LIBS", true);
    configuration.switch("MLX_BUILD_METAL", false);
    configuration.switch("MLX_BUILD_CUDA", true);
    configuration.switch("MLX_BUILD_CPU", options.cpu);
    configuration.define("MLX_CUDA_ARCHITECTURES", architectures.clone());
    // The library loads cuBLAS, cuDNN and the others from the folders where they were linked.
    configuration.switch("CMAKE_INSTALL_RPATH_USE_LINK_PATH", true);
    configuration.paths = vec![
        ("CMAKE_CUDA_COMPILER".to_owned(), nvcc.path.clone()),
        ("CUDNN_INCLUDE_PATH".to_owned(), cudnn.include.clone()),
        ("CUDNN_LIBRARY_PATH".to_owned(), cudnn.library.clone()),
        (
            "CMAKE_PROJECT_mlx_INCLUDE".to_owned(),
            crate::checkout().join("xtask/cmake/cuda.cmake"),
        ),
    ];
    configuration.tools.extend([
        ("nvcc".to_owned(), nvcc.version),
        ("cuDNN".to_owned(), cudnn.version),
        (ARCHITECTURES.to_owned(), architectures),
    ]);
    Ok(configuration)
}

/// The key of the architectures in a stamp's list of tools.
pub(crate) const ARCHITECTURES: &str = "CUDA architectures";
