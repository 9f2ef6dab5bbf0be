use std::fmt;
use std::path::Path;

use mlx_overlay_sys::{self as sys, built};

use crate::Result;

/// The back-ends that MLX can be built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// CPU only.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
    /// Apple's Metal.
    Metal,
    /// MLX's Metal back-end on a simulated device, on any Linux. It is for tests; its speed means nothing.
    Sim,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Metal => "metal",
            Self::Sim => "sim",
        })
    }
}

/// The properties of the linked MLX, and what can be used on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildInfo {
    /// MLX's version, as the library reports it.
    pub mlx_version: String,
    /// Git tree id of the source that the library was built from: the lock's final tree, or its
    /// base tree if `pristine`.
    pub tree: &'static str,
    /// Git tree id of the unpatched source.
    pub base_tree: &'static str,
    /// Whether it was built without the overlay, as a reference.
    pub pristine: bool,
    /// The back-end.
    pub backend: Backend,
    /// Whether the CPU back-end is included.
    pub cpu: bool,
    /// Whether Metal kernels are compiled at run time.
    pub jit: bool,
    /// The folder in which the library was installed when this program was built.
    pub prefix: &'static Path,
    /// Whether MLX has its Metal back-end and a device for it, real or simulated.
    pub metal_available: bool,
}

/// Returns the properties of the linked MLX.
///
/// # Errors
///
/// MLX's, if the query fails, for example because the library's version differs from that of its prefix.
pub fn build_info() -> Result<BuildInfo> {
    Ok(BuildInfo {
        mlx_version: mlx_version()?,
        tree: built::TREE,
        base_tree: built::BASE_TREE,
        pristine: built::PRISTINE == "true",
        backend: match built::BACKEND {
            "cuda" => Backend::Cuda,
            "metal" => Backend::Metal,
            "sim" => Backend::Sim,
            _ => Backend::Cpu,
        },
        cpu: built::CPU == "true",
        jit: built::JIT == "true",
        prefix: Path::new(built::PREFIX),
        metal_available: sys::metal_is_available()? && crate::Device::Gpu.is_available()?,
    })
}

/// MLX's version, as the linked library reports it.
///
/// # Errors
///
/// See [`build_info`].
pub fn mlx_version() -> Result<String> {
    Ok(sys::version()?)
}
