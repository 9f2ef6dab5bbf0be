//! Helpers that several tests share.
#![allow(dead_code, reason = "each test uses its own part")]

use mlx_overlay::{build_info, has_policies};

/// Why this build has no GPU, real or simulated, that follows policies; `None` if it has one.
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

/// A bound for the error of a float32 sum of these products. Each of K additions rounds by up to half a unit in the last
/// place, and roundings in both directions add up to the square root of their number: Higham and Mary, "A new approach
/// to probabilistic rounding error analysis", 2019.
pub(crate) fn rounding(x: &[f32], w: &[f32]) -> f64 {
    let terms = x.iter().zip(w);
    let magnitude: f64 = terms.map(|(x, w)| f64::from(x * w).abs()).sum();
    f64::from(f32::EPSILON) / 2.0 * (x.len() as f64).sqrt() * magnitude
}
