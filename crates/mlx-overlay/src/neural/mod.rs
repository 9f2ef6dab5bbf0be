//! Operations of a transformer other than products.

mod attention;
mod norm;
mod rope;

pub use attention::{Mask, attention};
pub use norm::{layer_norm, rms_norm};
pub use rope::{Frequencies, Positions, Rope, RopeOptions, rope, rope_with};
