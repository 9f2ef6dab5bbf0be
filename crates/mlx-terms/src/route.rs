//! Measured preferences between kernels.

use std::ops::RangeInclusive;

use crate::{FormatError, Mode, Path, named};

named! {
    /// A path that a [`Route`] can name; number and name are those of the [`Path`].
    "path" RoutePath {
        /// One row at a time.
        Qmv = 2 => "qmv",
        /// MLX's tiles of rows. Not used if rows must have the bits of one row.
        Wide = 3 => "qmv_wide",
        /// Order-preserving tiles of rows.
        Streamed = 4 => "qmv_streamed",
        /// Like `Streamed`, in the other of two arrangements; which one is faster depends on the
        /// GPU. Not used for batches, nor at 8 bits, which has only one arrangement.
        StreamedAlt = 8 => "qmv_streamed_alt",
    }
}

impl From<RoutePath> for Path {
    fn from(path: RoutePath) -> Self {
        match path {
            RoutePath::Qmv => Self::Qmv,
            RoutePath::Wide => Self::Wide,
            RoutePath::Streamed => Self::Streamed,
            RoutePath::StreamedAlt => Self::StreamedAlt,
        }
    }
}

/// A measured preference: products of a format whose sizes are in the ranges take a path, if the policy in force
/// permits it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The quantization mode, or any.
    pub mode: Option<Mode>,
    /// Bits per weight, or any.
    pub bits: Option<u8>,
    /// Weights that share a scale, or any number.
    pub group_size: Option<u8>,
    /// Outputs per row.
    pub n: RangeInclusive<i32>,
    /// Values per row.
    pub k: RangeInclusive<i32>,
    /// Rows.
    pub m: RangeInclusive<i32>,
    /// The path to take.
    pub path: RoutePath,
}

impl Route {
    /// Checks that the format exists.
    ///
    /// # Errors
    /// [`FormatError`] names the bits or the group size that its mode, or no mode, supports.
    pub fn check_format(&self) -> Result<(), FormatError> {
        let allowed = |values: fn(Mode) -> &'static [u32]| {
            let modes = self.mode.as_ref().map_or(Mode::ALL, std::slice::from_ref);
            let mut all: Vec<u32> = modes
                .iter()
                .flat_map(|&mode| values(mode))
                .copied()
                .collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        if let Some(bits) = self.bits {
            FormatError::check("bits", &allowed(Mode::bits), self.mode, bits.into())?;
        }
        if let Some(group_size) = self.group_size {
            let allowed = allowed(Mode::group_sizes);
            FormatError::check("group_size", &allowed, self.mode, group_size.into())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_those_of_the_path() {
        for &route in RoutePath::ALL {
            let path = Path::from(route);
            assert_eq!((route as i32, route.name()), (path as i32, path.name()));
        }
    }

    #[test]
    fn formats_that_no_mode_has_are_named() {
        let told = |mode, bits, group_size| {
            let route = Route {
                mode,
                bits,
                group_size,
                n: 0..=9,
                k: 0..=9,
                m: 0..=9,
                path: RoutePath::Qmv,
            };
            route.check_format().map_err(|error| error.to_string())
        };
        let refused = |text: &str| Err(text.to_owned());
        assert_eq!(told(None, None, None), Ok(()));
        assert_eq!(told(None, Some(8), Some(16)), Ok(()));
        assert_eq!(
            told(None, Some(7), None),
            refused("bits must be 1, 2, 3, 4, 5, 6 or 8, found 7")
        );
        assert_eq!(
            told(None, None, Some(48)),
            refused("group_size must be 16, 32, 64 or 128, found 48")
        );
        assert_eq!(
            told(Some(Mode::Affine), Some(4), Some(16)),
            refused("group_size must be 32, 64 or 128 in mode affine, found 16")
        );
        assert_eq!(
            told(Some(Mode::Mxfp4), Some(8), None),
            refused("bits must be 4 in mode mxfp4, found 8")
        );
        assert_eq!(
            told(Some(Mode::Mxfp8), Some(4), None),
            refused("bits must be 8 in mode mxfp8, found 4")
        );
        assert_eq!(
            told(Some(Mode::Nvfp4), Some(4), Some(32)),
            refused("group_size must be 16 in mode nvfp4, found 32")
        );
    }
}
