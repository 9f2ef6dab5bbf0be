//! Names of files, folders and variables.

/// The environment variable that names a prefix or bundle to link.
pub const PREFIX_VARIABLE: &str = "MLX_OVERLAY_PREFIX";

/// Set to 1 to link upstream's MLX without the overlay, as a reference.
pub const PRISTINE_VARIABLE: &str = "MLX_OVERLAY_PRISTINE";

/// The folder of all builds in a checkout. It ignores `CARGO_TARGET_DIR`, because build scripts search it here.
pub const BUILDS: &str = "target/mlx";

/// The link in a checkout to the last build with the overlay.
pub const CURRENT: &str = "target/mlx/current";

/// The stamp file in a prefix.
pub(crate) const STAMP: &str = "mlx-overlay.toml";

/// The stamp format that this version reads and writes.
pub(crate) const STAMP_FORMAT: u32 = 1;
