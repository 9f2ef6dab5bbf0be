//! The options of a build, and the CMake configuration that a back-end derives from them.

use std::collections::BTreeMap;

use camino::Utf8PathBuf;
use mlx_prefix::Backend;

use crate::Usage;

/// The options that change the result of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub backend: Backend,
    /// Include the CPU back-end if the back-end makes it optional.
    pub cpu: bool,
    /// Compile Metal kernels from their source at run time instead of ahead of time.
    pub jit: bool,
    /// The GPUs that CUDA kernels are compiled for, as CMake lists them; `None` for those of this machine.
    pub cuda_architectures: Option<String>,
}

impl Options {
    /// Refuses options that exclude each other.
    pub(crate) fn check(&self) -> Result<(), Usage> {
        if self.jit && matches!(self.backend, Backend::Cpu | Backend::Cuda) {
            return Err(Usage(format!(
                "--jit selects how Metal kernels are compiled; the {} back-end has no Metal kernels",
                self.backend
            )));
        }
        if self.cuda_architectures.is_some() && self.backend != Backend::Cuda {
            return Err(Usage(format!(
                "--cuda-architectures is for `--backend cuda`; the {} back-end has no CUDA kernels",
                self.backend
            )));
        }
        Ok(())
    }
}

/// What a back-end adds to the CMake run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    /// `-D` options, in order. If a name is given twice, the later value wins.
    pub defines: Vec<(String, String)>,
    /// `-D` options that name files of this workspace. They are not part of the build's key.
    pub paths: Vec<(String, Utf8PathBuf)>,
    /// Environment variables of the CMake and Ninja processes.
    pub env: BTreeMap<String, String>,
    /// A folder to put first on their `PATH`.
    pub path_first: Option<Utf8PathBuf>,
    /// Versions of further tools that affect the result; they are part of the build's key.
    pub tools: BTreeMap<String, String>,
    /// Whether the CPU back-end is part of the library.
    pub cpu: bool,
    /// Whether a metallib is built. It is installed into the prefix's library folder; the library searches that path
    /// last.
    pub metallib: bool,
    /// The oldest macOS that C++, Metal and Rust code are built for.
    pub deployment_target: Option<String>,
    /// The compiler's run-time library, which Rust does not link by default: MLX's `__builtin_available` needs
    /// `___isPlatformVersionAtLeast` from it.
    pub clang_rt: Option<Utf8PathBuf>,
}

impl Configuration {
    pub(super) fn define(&mut self, name: &str, value: impl Into<String>) {
        self.defines.push((name.to_owned(), value.into()));
    }

    pub(super) fn switch(&mut self, name: &str, on: bool) {
        self.define(name, if on { "ON" } else { "OFF" });
    }
}
