//! How weights are quantized: the modes, and the bits and group sizes of each.

use crate::named;

named! {
    /// A quantization mode, in the order of MLX's `QuantizationMode`.
    #[non_exhaustive]
    "mode" Mode {
        /// `w = scale * q + bias`, with one scale and one bias per group.
        Affine => "affine",
        /// 4-bit floats (E2M1) with a shared exponent (E8M0).
        Mxfp4 => "mxfp4",
        /// 8-bit floats (E4M3) with a shared exponent (E8M0).
        Mxfp8 => "mxfp8",
        /// 4-bit floats (E2M1) with a float scale (E4M3).
        Nvfp4 => "nvfp4",
    }
}

impl Mode {
    /// The bits per weight for which MLX has kernels.
    #[must_use]
    pub const fn bits(self) -> &'static [u32] {
        match self {
            Self::Affine => &[1, 2, 3, 4, 5, 6, 8],
            Self::Mxfp4 | Self::Nvfp4 => &[4],
            Self::Mxfp8 => &[8],
        }
    }

    /// The group sizes for which MLX has kernels.
    #[must_use]
    pub const fn group_sizes(self) -> &'static [u32] {
        match self {
            Self::Affine => &[32, 64, 128],
            Self::Mxfp4 | Self::Mxfp8 => &[32],
            Self::Nvfp4 => &[16],
        }
    }

    /// The format of a mode that has only one.
    #[must_use]
    pub const fn fixed(self) -> Option<Format> {
        match (self.bits(), self.group_sizes()) {
            (&[bits], &[group_size]) => Some(Format {
                mode: self,
                bits,
                group_size,
            }),
            _ => None,
        }
    }
}

/// A mode with bits and a group size for which MLX has kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Format {
    mode: Mode,
    bits: u32,
    group_size: u32,
}

impl Format {
    /// The format of a mode with so many bits per weight and weights per group.
    ///
    /// # Errors
    /// [`FormatError`] names the value that the mode does not support.
    pub fn new(mode: Mode, bits: u32, group_size: u32) -> Result<Self, FormatError> {
        FormatError::check("bits", mode.bits(), Some(mode), bits)?;
        FormatError::check("group_size", mode.group_sizes(), Some(mode), group_size)?;
        Ok(Self {
            mode,
            bits,
            group_size,
        })
    }

    /// Every format.
    pub fn all() -> impl Iterator<Item = Self> {
        Mode::ALL.iter().flat_map(|&mode| {
            mode.bits().iter().flat_map(move |&bits| {
                mode.group_sizes().iter().map(move |&group_size| Self {
                    mode,
                    bits,
                    group_size,
                })
            })
        })
    }

    /// The mode.
    #[must_use]
    pub const fn mode(self) -> Mode {
        self.mode
    }

    /// Bits per weight.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Weights that share a scale.
    #[must_use]
    pub const fn group_size(self) -> u32 {
        self.group_size
    }
}

/// Bits or a group size that a mode does not support.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{field} must be {expected}{place}, found {found}", place = place(*.mode))]
pub struct FormatError {
    /// `bits` or `group_size`.
    pub field: &'static str,
    /// The supported values, as in "32, 64 or 128".
    pub expected: String,
    /// The mode; `None` if no mode supports the value.
    pub mode: Option<Mode>,
    /// The value that was found.
    pub found: u32,
}

fn place(mode: Option<Mode>) -> String {
    mode.map_or_else(String::new, |mode| format!(" in mode {mode}"))
}

impl FormatError {
    pub(crate) fn check(
        field: &'static str,
        allowed: &[u32],
        mode: Option<Mode>,
        found: u32,
    ) -> Result<(), Self> {
        if allowed.contains(&found) {
            return Ok(());
        }
        let names: Vec<String> = allowed.iter().map(u32::to_string).collect();
        let expected = match names.as_slice() {
            [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            one => one.concat(),
        };
        Err(Self {
            field,
            expected,
            mode,
            found,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_one() {
        assert_eq!(Format::all().count(), 7 * 3 + 3);
        for format in Format::all() {
            let again = Format::new(format.mode(), format.bits(), format.group_size());
            assert_eq!(again, Ok(format));
        }
        assert_eq!(Mode::Affine.fixed(), None);
        let nvfp4 = Format::new(Mode::Nvfp4, 4, 16).unwrap();
        assert_eq!(Mode::Nvfp4.fixed(), Some(nvfp4));
    }

    #[test]
    fn what_a_mode_lacks_is_named() {
        let told = |mode, bits, group| Format::new(mode, bits, group).unwrap_err().to_string();
        assert_eq!(
            told(Mode::Affine, 7, 64),
            "bits must be 1, 2, 3, 4, 5, 6 or 8 in mode affine, found 7"
        );
        assert_eq!(
            told(Mode::Nvfp4, 4, 32),
            "group_size must be 16 in mode nvfp4, found 32"
        );
    }
}
