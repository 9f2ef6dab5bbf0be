//! All cases together.

use anyhow::Result;

use crate::identity::{Group, Tier};
use crate::{fp, identity};

/// A part of the cases; [`Tier`] describes the affine part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Modes {
    /// Affine weights.
    Affine,
    /// mxfp4, mxfp8 and nvfp4, the last also with a global scale. The format replaces bits and groups; everything else
    /// is as for affine, for all formats. Core has M = 3 to 16 and `exact:all` only for nvfp4; full adds 40 seeds of
    /// every format, type and kind of K at M = 5 and 8.
    Fp,
}

/// The groups of a tier.
///
/// # Errors
/// The plan's errors.
pub fn groups(tier: Tier, modes: Modes) -> Result<Vec<Group>> {
    match modes {
        Modes::Affine => identity::groups(tier),
        Modes::Fp => fp::groups(tier),
    }
}
