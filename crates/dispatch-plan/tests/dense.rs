//! Plans of dense products.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use dispatch_plan::{Dense, DenseWay, Dtype, Policy, dense};

fn product(m: u32, n: u32, k: u32) -> Dense {
    Dense {
        architecture: "g15d".parse().unwrap(),
        dtype: Dtype::Float32,
        addmm: false,
        transpose: true,
        m,
        n,
        k,
        batch: 1,
    }
}

#[test]
fn weights_are_read_once_for_eight_rows() {
    let passes = |m, policy| {
        dense(&product(m, 4096, 4096), policy)
            .unwrap()
            .weight_passes
    };
    assert_eq!(
        [1, 2, 8, 9, 16].map(|m| passes(m, Policy::EXACT)),
        [1, 1, 1, 2, 2]
    );
    assert_eq!(passes(8, Policy::NARROW), 8);
}

#[test]
fn rows_keep_their_bits_up_to_a_block() {
    for (n, k) in [(1, 2048), (3, 65), (64, 4100), (4096, 64)] {
        for m in 2..=40 {
            for policy in [Policy::EXACT, Policy::NARROW, Policy::WIDE] {
                let plan = dense(&product(m, n, k), policy).unwrap();
                assert_eq!(plan.identical, m <= 16, "{m} rows, {policy}");
                assert_eq!(plan.way == DenseWay::Upstream, m > 16);
            }
            assert!(!dense(&product(m, n, k), Policy::DEFAULT).unwrap().identical);
            assert!(
                dense(&product(m, n, k), Policy::EXACT.all())
                    .unwrap()
                    .identical
            );
        }
    }
}

#[test]
fn a_row_alone_has_one_plan_under_every_policy() {
    for &policy in Policy::KINDS {
        let plan = dense(&product(1, 64, 130), policy).unwrap();
        assert_eq!(plan.kernel, "gemv_float32_bm4_bn1_sm1_sn32_tm4_tn4");
        assert!(plan.identical);
    }
}
