use std::fmt;

use mlx_overlay_sys::{self as sys, DeviceKind};

use crate::{Error, Result};

/// A device on which work runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Device {
    /// The CPU.
    Cpu,
    /// The GPU of MLX's Metal back-end: an Apple GPU, or the simulated one if MLX was built for it.
    Gpu,
}

impl Device {
    /// Whether the linked library has a back-end for this device and the machine has such a device.
    ///
    /// # Errors
    ///
    /// MLX's, if the query fails.
    pub fn is_available(self) -> Result<bool> {
        Ok(sys::device_is_available(self.raw())?)
    }

    /// The GPU if there is one, else the CPU: the device of a thread that has not entered a [`crate::Stream`].
    ///
    /// # Errors
    ///
    /// MLX's, if the query fails.
    pub fn preferred() -> Result<Self> {
        Ok(if Self::Gpu.is_available()? {
            Self::Gpu
        } else {
            Self::Cpu
        })
    }

    /// The vendor's name for the device.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`] if there is none.
    pub fn name(self) -> Result<String> {
        self.property("device_name")
    }

    /// The device's architecture, for example `applegpu_g15d` for an Apple GPU or `x86_64` for a CPU.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`] if there is none.
    pub fn architecture(self) -> Result<String> {
        self.property("architecture")
    }

    fn property(self, key: &str) -> Result<String> {
        self.require()?;
        Ok(sys::device_property(self.raw(), key)?)
    }

    pub(crate) fn require(self) -> Result<()> {
        if self.is_available()? {
            Ok(())
        } else {
            Err(Error::NoDevice(self))
        }
    }

    pub(crate) fn raw(self) -> DeviceKind {
        match self {
            Self::Cpu => DeviceKind::Cpu,
            Self::Gpu => DeviceKind::Gpu,
        }
    }

    pub(crate) fn from_raw(raw: DeviceKind) -> Self {
        if raw == DeviceKind::Cpu {
            Self::Cpu
        } else {
            Self::Gpu
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
        })
    }
}
