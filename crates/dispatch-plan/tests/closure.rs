//! No product asks for a kernel that the closure does not name.

#![allow(clippy::unwrap_used, reason = "a test stops where something is amiss")]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use dispatch_plan::{Dtype, Mode, Op, Path, Policy, Problem, Route, kernels, plan};
use proptest::prelude::*;
use proptest::sample::select;

static KERNELS: LazyLock<[BTreeMap<String, Path>; 2]> =
    LazyLock::new(|| [false, true].map(|nax| kernels(nax).unwrap()));

#[test]
fn matrix_units_add_kernels_and_replace_none() {
    let [without, with] = &*KERNELS;
    assert!(without.keys().all(|name| with.contains_key(name)));
    assert!(without.keys().all(|name| !name.contains("_nax")));
    let added = with.keys().filter(|name| !without.contains_key(*name));
    assert!(added.clone().count() > 0 && added.clone().all(|name| name.contains("_nax")));
}

#[test]
fn every_family_is_met() {
    let met = |path: &Path| KERNELS[0].values().any(|other| other == path);
    let unmet: Vec<_> = Path::ALL.iter().filter(|path| !met(path)).collect();
    assert_eq!(unmet, [&Path::None]);
}

/// A format with a multiple of its group.
fn format() -> impl Strategy<Value = (Mode, u32, u32)> {
    let affine = (select(vec![1, 2, 3, 4, 5, 6, 8]), select(vec![32, 64, 128]));
    prop_oneof![
        affine.prop_map(|(bits, group)| (Mode::Affine, bits, group)),
        Just((Mode::Mxfp4, 4, 32)),
        Just((Mode::Mxfp8, 8, 32)),
        Just((Mode::Nvfp4, 4, 16)),
    ]
}

/// Numbers near those that the dispatch looks at, and others.
fn size(most: u32) -> impl Strategy<Value = u32> {
    prop_oneof![1..80_u32, 1..most, (0..12_u32).prop_map(|n| 1 << n)]
}

prop_compose! {
    fn problem()(
        architecture in (select(vec![13, 14, 15, 16, 17, 18]), select(vec!['p', 'g', 's', 'd'])),
        nax in any::<bool>(),
        (mode, bits, group_size) in format(),
        op in select(Op::ALL),
        dtype in select(Dtype::ALL),
        transpose: bool,
        m in size(4_000),
        (packed, other) in (size(20_000), size(20_000)),
        (batch, experts) in (size(600), size(200)),
        (right_sorted, global_scale) in any::<(bool, bool)>(),
    ) -> Problem {
        let (generation, size) = architecture;
        let architecture = format!("g{generation}{size}").parse().unwrap();
        let quantizes = matches!(op, Op::QqMatmul | Op::GatherQqmm) && mode != Mode::Affine;
        let op = if mode == Mode::Affine && matches!(op, Op::QqMatmul | Op::GatherQqmm) {
            Op::QuantizedMatmul
        } else {
            op
        };
        let transpose = transpose || quantizes;
        let packed = packed.next_multiple_of(group_size);
        let (n, k) = if transpose { (other, packed) } else { (packed, other) };
        Problem {
            architecture,
            nax: nax && generation >= 17,
            op,
            mode,
            dtype,
            bits,
            group_size,
            transpose,
            m,
            n,
            k,
            // qqmm multiplies matrices only.
            batch: if op == Op::QqMatmul { 1 } else { batch },
            experts: if matches!(op, Op::GatherQmm | Op::GatherQqmm) { experts } else { 1 },
            right_sorted,
            global_scale: global_scale && mode == Mode::Nvfp4 && op != Op::QuantizedMatmul,
        }
    }
}

proptest! {
    // Failures are told, not stored: the file would lie outside the repository.
    #![proptest_config(ProptestConfig {
        cases: 5_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_product_asks_for_another(
        problem in problem(),
        policy in select(Policy::ALL),
        routed in select(vec![None, Some(Path::Qmv), Some(Path::Wide), Some(Path::Streamed)]),
    ) {
        let all = [0, i32::MAX];
        let route = routed.map(|path| Route { mode: None, bits: None, group_size: None, n: all, k: all, m: all, path });
        let plan = plan(&problem, policy, route.as_slice()).unwrap();
        let known = KERNELS[usize::from(problem.nax)].get(&plan.kernel);
        prop_assert_eq!(known, Some(&plan.path), "{}", plan.kernel);
    }
}
