//! The simulated device's settings, as values instead of environment variables.

use std::path::PathBuf;
use std::process::Command;

use mlx_terms::Architecture;

/// The order in which `simd_sum` adds the lanes. Apple does not document it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reduction {
    /// Lanes 16 apart first, then 8, 4, 2, 1.
    #[default]
    Butterfly,
    /// Neighbours first.
    Neighbours,
    /// One lane after another.
    Sequential,
}

/// A device to simulate. Settings that are not set have the runtime's defaults.
///
/// The device belongs to a process and is fixed at its first use. Settings reach it through the
/// environment of a new process ([`Device::apply`]), or by name and value ([`Device::settings`],
/// for `metal_sim_configure`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Device {
    settings: Vec<(&'static str, String)>,
}

impl Device {
    pub fn new() -> Self {
        Self::default()
    }

    fn set(mut self, name: &'static str, value: impl ToString) -> Self {
        self.settings.retain(|(other, _)| *other != name);
        self.settings.push((name, value.to_string()));
        self
    }

    #[must_use]
    pub fn architecture(self, architecture: Architecture) -> Self {
        self.set("MTL_SIM_ARCH", architecture)
    }

    /// The version of the operating system that `__builtin_available` reports.
    #[must_use]
    pub fn macos(self, major: u32, minor: u32) -> Self {
        self.set("MTL_SIM_OS", format!("{major}.{minor}"))
    }

    /// Memory of the machine, in bytes.
    #[must_use]
    pub fn memory(self, bytes: u64) -> Self {
        self.set("MTL_SIM_MEMORY", bytes)
    }

    /// The maximum number of threads in a threadgroup, 32 to 1024.
    #[must_use]
    pub fn max_threads(self, threads: u32) -> Self {
        self.set("MTL_SIM_MAX_THREADS", threads)
    }

    /// The number of threadgroups that run at once on the host.
    #[must_use]
    pub fn host_threads(self, threads: u32) -> Self {
        self.set("MTL_SIM_THREADS", threads)
    }

    #[must_use]
    pub fn reduction(self, reduction: Reduction) -> Self {
        let name = match reduction {
            Reduction::Butterfly => "butterfly",
            Reduction::Neighbours => "neighbours",
            Reduction::Sequential => "sequential",
        };
        self.set("MTL_SIM_SIMD_SUM", name)
    }

    /// How a product and a sum in one expression are rounded.
    #[must_use]
    pub fn contraction(self, contraction: crate::Contraction) -> Self {
        let name = match contraction {
            crate::Contraction::Fused => "fused",
            crate::Contraction::Split => "split",
        };
        self.set("MTL_SIM_CONTRACT", name)
    }

    /// A file that receives one JSON line for each dispatch ([`crate::trace`]).
    #[must_use]
    pub fn trace(self, file: impl Into<PathBuf>) -> Self {
        self.set("MTL_SIM_TRACE", file.into().display())
    }

    /// Whether kernels run. If not, dispatches are bound, counted and traced, but outputs are not
    /// written. Use it to see what a large problem would dispatch.
    #[must_use]
    pub fn run(self, on: bool) -> Self {
        self.set("MTL_SIM_RUN", u8::from(on))
    }

    /// Faults when an access leaves its buffer or uses a released buffer.
    #[must_use]
    pub fn guard(self, on: bool) -> Self {
        self.set("MTL_SIM_GUARD", u8::from(on))
    }

    /// Whether an output that a kernel does not write is an error.
    #[must_use]
    pub fn unwritten(self, on: bool) -> Self {
        self.set("MTL_SIM_UNWRITTEN", u8::from(on))
    }

    /// Runs unordered dispatches, and threadgroups, in random order.
    #[must_use]
    pub fn shuffle(self, seed: u64) -> Self {
        self.set("MTL_SIM_SHUFFLE", seed)
    }

    /// Counts the bytes read and written through each argument, and checks every access. Slower.
    #[must_use]
    pub fn meter(self, on: bool) -> Self {
        self.set("MTL_SIM_METER", u8::from(on))
    }

    /// Makes kernels detect invalid accesses, or results that depend on uninitialized values
    /// (`MTL_SIM_CHECK`). Much slower.
    #[must_use]
    pub fn check(self, what: crate::Variant) -> Self {
        let name = match what {
            crate::Variant::Checked => "access",
            crate::Variant::Tracked => "init",
            crate::Variant::Plain | crate::Variant::Metered => "0",
        };
        self.set("MTL_SIM_CHECK", name)
    }

    /// Names and values, in the order in which they were set.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
    }

    /// Adds the settings to the environment of a process to be started.
    pub fn apply<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.envs(self.settings())
    }
}

#[cfg(test)]
mod tests {
    use mlx_terms::SizeClass;

    use super::*;

    #[test]
    fn the_last_value_of_a_setting_counts() {
        let device = Device::new()
            .architecture(Architecture::new(13, SizeClass::Max).unwrap())
            .macos(26, 0)
            .meter(true)
            .macos(26, 2)
            .reduction(Reduction::Sequential);
        let settings: Vec<_> = device.settings().collect();
        assert_eq!(
            settings,
            [
                ("MTL_SIM_ARCH", "applegpu_g13s"),
                ("MTL_SIM_METER", "1"),
                ("MTL_SIM_OS", "26.2"),
                ("MTL_SIM_SIMD_SUM", "sequential"),
            ]
        );
    }
}
