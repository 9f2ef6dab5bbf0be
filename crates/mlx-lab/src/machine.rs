//! Where something was computed, as far as figures depend on it.

use std::process::Command;

use mlx_overlay::{Backend, Device, build_info};
use serde::{Deserialize, Serialize};

use crate::Result;

/// A machine, its system, and the MLX that ran on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The device's name, as its maker or the simulator gives it.
    pub device: String,
    /// Its architecture, `applegpu_g15d` for example.
    pub architecture: String,
    /// Whether the device is simulated. Then no time says anything about a GPU.
    pub simulated: bool,
    /// The back-end: `metal`, `sim` or `cpu`.
    pub backend: String,
    /// Operating system and its version.
    pub system: String,
    /// MLX's version.
    pub mlx: String,
    /// Git tree id of its source.
    pub tree: String,
    /// Whether the overlay was left out.
    pub pristine: bool,
    /// Whether kernels are compiled at run time.
    pub jit: bool,
    /// Whether this program was built with optimisation.
    pub optimised: bool,
}

impl Machine {
    /// This machine, with the device that work runs on unless told otherwise.
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

    /// What every report says of the times in it.
    pub fn caveat(&self) -> Option<&'static str> {
        if self.simulated {
            Some("simulated: times are of the simulator, and say nothing about a GPU")
        } else if self.backend == "cpu" {
            Some("CPU back-end: times are of this processor")
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

    /// One line.
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

/// What macOS says about power and heat, where it says anything.
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
