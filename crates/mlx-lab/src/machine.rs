//! The properties of the machine that results depend on.

use std::process::Command;

use mlx_overlay::{Backend, Device, build_info};
use serde::{Deserialize, Serialize};

use crate::Result;

/// A machine, its system, and the MLX that ran on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The device's name, as its vendor or the simulator gives it.
    pub device: String,
    /// Its architecture, for example `applegpu_g15d`.
    pub architecture: String,
    /// Whether the device is simulated. If so, its times say nothing about a GPU.
    pub simulated: bool,
    /// The back-end: `metal`, `sim` or `cpu`.
    pub backend: String,
    /// Operating system and its version.
    pub system: String,
    /// MLX's version.
    pub mlx: String,
    /// Git tree id of its source.
    pub tree: String,
    /// Whether it was built without the overlay.
    pub pristine: bool,
    /// Whether kernels are compiled at run time.
    pub jit: bool,
    /// Whether this program was built with optimisation.
    pub optimised: bool,
}

impl Machine {
    /// This machine, with the default device.
    ///
    /// # Errors
    /// MLX's.
    pub fn here() -> Result<Self> {
        let info = build_info()?;
        let device = Device::preferred()?;
        Ok(Self {
            device: device.name()?,
            architecture: device.architecture()?,
            simulated: info.backend == Backend::Sim && device == Device::Gpu,
            backend: info.backend.to_string(),
            system: system(),
            mlx: info.mlx_version,
            tree: info.tree.to_owned(),
            pristine: info.pristine,
            jit: info.jit,
            optimised: !cfg!(debug_assertions),
        })
    }

    /// The caveat about times that every report includes.
    pub fn caveat(&self) -> Option<&'static str> {
        if self.simulated {
            Some("simulated: times are those of the simulator, not of a GPU")
        } else if self.backend == "cpu" {
            Some("CPU back-end: times are those of this processor")
        } else if !self.optimised {
            Some("built without optimisation: times include a slow host side")
        } else {
            None
        }
    }

    /// The device and its architecture.
    pub fn place(&self) -> String {
        if self.device.contains(&self.architecture) {
            self.device.clone()
        } else {
            format!("{} ({})", self.device, self.architecture)
        }
    }

    /// A one-line description.
    pub fn line(&self) -> String {
        let build = match (self.pristine, self.jit) {
            (true, true) => "pristine, JIT",
            (true, false) => "pristine",
            (false, true) => "patched, JIT",
            (false, false) => "patched",
        };
        format!(
            "{}, {}, MLX {} {build}, back-end {}, tree {}",
            self.place(),
            self.system,
            self.mlx,
            self.backend,
            self.tree.get(..12).unwrap_or(&self.tree)
        )
    }
}

fn system() -> String {
    let version = if cfg!(target_os = "macos") {
        output("sw_vers", &["-productVersion"])
    } else {
        output("uname", &["-r"])
    };
    let version = version.unwrap_or_else(|| "of unknown version".to_owned());
    format!("{} {version}", std::env::consts::OS)
}

/// Power and temperature, if macOS reports them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Source of power.
    pub power: Option<String>,
    /// Limits for heat.
    pub thermal: Option<String>,
}

impl Condition {
    /// The condition now.
    pub fn now() -> Self {
        if !cfg!(target_os = "macos") {
            return Self {
                power: None,
                thermal: None,
            };
        }
        Self {
            power: output("pmset", &["-g", "ps"]),
            thermal: output("pmset", &["-g", "therm"]),
        }
    }
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
