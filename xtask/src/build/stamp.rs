//! The stamp of an installed prefix: what it was built from and how a program links it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use camino::Utf8Path;
use serde::{Deserialize, Serialize};

use super::Backend;
use crate::host::Host;

/// The stamp's file name, in the prefix's root.
pub const FILE_NAME: &str = "mlx-overlay.toml";

/// The version of the stamp's format that is written and read.
pub const FORMAT: u32 = 1;

/// The stamp. Paths are relative to the prefix unless they are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Version of this format: [`FORMAT`].
    pub format: u32,
    /// MLX's version.
    pub version: String,
    /// Tree id of the pinned source.
    pub base_tree: String,
    /// Tree id of the source that was built.
    pub final_tree: String,
    /// Built without the overlay, as a reference.
    pub pristine: bool,
    /// The back-end.
    pub backend: Backend,
    /// Metal kernels are compiled at run time.
    pub jit: bool,
    /// The CPU back-end is included.
    pub cpu: bool,
    /// Include folders.
    pub include: Vec<String>,
    /// The folder of the static libraries.
    pub lib: String,
    /// Static libraries in it, in link order.
    pub static_libs: Vec<String>,
    /// Libraries of the system, in link order.
    pub system_libs: Vec<String>,
    /// Folders where system libraries lie that the linker may not search by itself.
    pub link_search: Vec<String>,
    /// Apple frameworks.
    pub frameworks: Vec<String>,
    /// Preprocessor definitions for code that includes MLX's headers.
    pub defines: Vec<String>,
    /// The C++ standard for such code.
    pub cxx_std: String,
    /// The compiled Metal kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metallib: Option<String>,
    /// The `MACOSX_DEPLOYMENT_TARGET` that a program linking this must be built with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_target: Option<String>,
    /// clang's run-time library, to be linked last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clang_rt: Option<String>,
    /// The tools that built it and their versions.
    pub tools: BTreeMap<String, String>,
}

impl Stamp {
    /// Reads the stamp of `prefix`; nothing where there is none, where it is not readable as one or
    /// of another format: each time the prefix has to be built.
    pub fn read(prefix: &Utf8Path) -> Option<Self> {
        let text = fs_err::read_to_string(prefix.join(FILE_NAME)).ok()?;
        let stamp: Self = toml::from_str(&text).ok()?;
        (stamp.format == FORMAT).then_some(stamp)
    }

    /// The command that builds what this stamp says, on `host`.
    pub(crate) fn command(&self, host: &Host) -> String {
        let mut command = "cargo xtask build".to_owned();
        if self.backend != Backend::default_for(host) {
            command += &format!(" --backend {}", self.backend);
        }
        let optional_cpu = self.cpu && self.backend == Backend::Sim;
        for (on, flag) in [
            (optional_cpu, " --cpu"),
            (self.jit, " --jit"),
            (self.pristine, " --pristine"),
        ] {
            if on {
                command += flag;
            }
        }
        command
    }

    /// Writes the stamp into a prefix that is in the making.
    pub fn write(&self, prefix: &Utf8Path) -> Result<()> {
        let text = toml::to_string(self).context("the stamp cannot be written as TOML")?;
        fs_err::write(prefix.join(FILE_NAME), text)?;
        Ok(())
    }
}
