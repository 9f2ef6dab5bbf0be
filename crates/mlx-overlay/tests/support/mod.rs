//! What tests of policies share.

use mlx_overlay::{build_info, has_policies};

/// Why this build has no GPU, real or simulated, that follows policies; `None` where it has one.
pub(crate) fn without_policies() -> Option<String> {
    match build_info() {
        Ok(info) if info.metal_available && has_policies() => None,
        Ok(info) => Some(format!(
            "back-end {} has no GPU with policies",
            info.backend
        )),
        Err(error) => Some(error.to_string()),
    }
}
