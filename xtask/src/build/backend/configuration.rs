//! The choices of a build, and what a back-end makes of them.

use std::collections::BTreeMap;

use camino::Utf8PathBuf;
use mlx_prefix::Backend;

use crate::Usage;

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
    pub(super) fn define(&mut self, name: &str, value: impl Into<String>) {
        self.defines.push((name.to_owned(), value.into()));
    }

    pub(super) fn switch(&mut self, name: &str, on: bool) {
        self.define(name, if on { "ON" } else { "OFF" });
    }
}
