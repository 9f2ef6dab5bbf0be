//! What files, folders and variables are called.

/// The environment variable that names a prefix or bundle to link.
pub const PREFIX_VARIABLE: &str = "MLX_OVERLAY_PREFIX";

/// Set to 1: link upstream's MLX without the overlay, as a reference.
pub const PRISTINE_VARIABLE: &str = "MLX_OVERLAY_PRISTINE";

/// The folder of all builds, in a checkout. It does not follow `CARGO_TARGET_DIR`: build scripts look for it there.
pub const BUILDS: &str = "target/mlx";

/// The link to the last build with the overlay, in a checkout.
pub const CURRENT: &str = "target/mlx/current";

/// The stamp, in a prefix.
pub(crate) const STAMP: &str = "mlx-overlay.toml";

/// The format of the stamp that is read and written.
pub(crate) const STAMP_FORMAT: u32 = 1;
