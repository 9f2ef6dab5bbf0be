//! A program that links no MLX, and the copies of other files in this crate.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use mlx_row_policy::{
    DispatchPlan, Error, FloatType, Format, Mode, Policy, Stream, dispatch_stats, has_policies,
    process_policy, reset_dispatch_stats,
};

#[test]
fn without_mlx_everything_says_so() {
    let format = Format::new(Mode::Affine, 4, 64).unwrap();
    let plan = DispatchPlan::of([1, 8, 512], format, FloatType::F32, None);
    for outcome in [
        has_policies().map(drop),
        process_policy().map(drop),
        Stream::from_index(0).map(drop),
        Stream::with_policy(Policy::EXACT).map(drop),
        plan.map(drop),
        dispatch_stats().map(drop),
        reset_dispatch_stats(),
    ] {
        assert_eq!(outcome, Err(Error::NoOverlay));
    }
}

/// The crate's C code uses the overlay's header, and a package contains only files of its own folder.
#[test]
fn the_header_is_that_of_the_overlay() {
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/mlx/row_policy.h");
    let overlay = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../patches/files/mlx/row_policy.h"
    );
    assert!(
        std::fs::read(ours).unwrap() == std::fs::read(overlay).unwrap(),
        "cp {overlay} {ours}"
    );
}
