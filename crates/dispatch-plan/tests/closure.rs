//! No product asks for a kernel that is missing from the closure.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use dispatch_plan::{
    Architecture, Attention, Dense, DenseWay, Dtype, Format, Mode, Op, Plan, Policy, Problem,
    Route, RoutePath, kernels, plan,
};
use proptest::prelude::*;
use proptest::sample::select;

static DENSE: LazyLock<BTreeSet<String>> =
    LazyLock::new(|| dispatch_plan::dense_kernels().unwrap());
static ATTENTION: LazyLock<BTreeSet<String>> =
    LazyLock::new(|| dispatch_plan::attention_kernels().unwrap());
static KERNELS: LazyLock<[BTreeMap<String, Plan>; 2]> =
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
fn every_function_is_met() {
    let functions = |kernels: &BTreeMap<String, Plan>| {
        let functions: BTreeSet<_> = kernels.values().map(|plan| plan.function).collect();
        functions.into_iter().collect::<Vec<_>>()
    };
    let without = [
        "gather_qmm_n",
        "gather_qmm_rhs_nn",
        "gather_qmm_rhs_nt",
        "gather_qmm_t",
        "gather_qmv",
        "gather_qmv_fast",
        "gather_qvm",
        "qmm_n",
        "qmm_t",
        "qmm_t_splitk",
        "qmv",
        "qmv_fast",
        "qmv_quad",
        "qmv_streamed",
        "qmv_streamed_fast",
        "qmv_wide",
        "qvm",
        "qvm_split_k",
    ];
    assert_eq!(functions(&KERNELS[0]), without);
    let with = [
        &without[..],
        &[
            "gather_qmm_rhs_nax_nn",
            "gather_qmm_rhs_nax_nt",
            "gather_qmm_t_nax",
            "qmm_n_nax",
            "qmm_t_nax",
        ],
    ];
    let mut with = with.concat();
    with.sort_unstable();
    assert_eq!(functions(&KERNELS[1]), with);
}

/// Numbers near those that the dispatch compares with, and others.
fn size(most: u32) -> impl Strategy<Value = u32> {
    prop_oneof![1..80_u32, 1..most, (0..12_u32).prop_map(|n| 1 << n)]
}

prop_compose! {
    fn problem()(
        architecture in select(Architecture::all().collect::<Vec<_>>()),
        nax in any::<bool>(),
        format in select(Format::all().collect::<Vec<_>>()),
        op in select(Op::ALL),
        dtype in select(Dtype::ALL),
        transpose: bool,
        m in size(4_000),
        (packed, other) in (size(20_000), size(20_000)),
        (batch, experts) in (size(600), size(200)),
        (right_sorted, global_scale) in any::<(bool, bool)>(),
    ) -> Problem {
        let mode = format.mode();
        let op = if mode == Mode::Affine && op.quantizes_x() { Op::QuantizedMatmul } else { op };
        let transpose = transpose || op.quantizes_x();
        let packed = packed.next_multiple_of(format.group_size());
        let (n, k) = if transpose { (other, packed) } else { (packed, other) };
        Problem {
            nax: nax && architecture.has_matrix_units(),
            op,
            dtype,
            transpose,
            m,
            // qqmm multiplies only matrices.
            batch: if op == Op::QqMatmul { 1 } else { batch },
            experts: if op.gathers() { experts } else { 1 },
            right_sorted,
            global_scale: global_scale && mode == Mode::Nvfp4 && op != Op::QuantizedMatmul,
            ..Problem::new(architecture, n, k).with_format(format)
        }
    }
}

proptest! {
    // Failures are printed, not stored: the file would be outside the repository.
    #![proptest_config(ProptestConfig {
        cases: 5_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_product_asks_for_another(
        problem in problem(),
        policy in select(Policy::KINDS),
        limit in prop_oneof![Just(None), (1..3_000_u32).prop_map(Some)],
        routed in select(vec![None, Some(RoutePath::Qmv), Some(RoutePath::Wide), Some(RoutePath::Streamed), Some(RoutePath::StreamedAlt)]),
    ) {
        let all = 0..=i32::MAX;
        let route = routed.map(|path| Route {
            mode: None,
            bits: None,
            group_size: None,
            n: all.clone(),
            k: all.clone(),
            m: all,
            path,
        });
        let policy = limit.map_or(policy.all(), |rows| policy.with_rows(rows).unwrap());
        let plan = plan(&problem, policy, route.as_slice()).unwrap();
        let known = KERNELS[usize::from(problem.nax)].get(&plan.kernel);
        prop_assert_eq!(known.map(|known| known.function), Some(plan.function), "{}", plan.kernel);
    }

    #[test]
    fn no_dense_product_asks_for_another(
        architecture in select(Architecture::all().collect::<Vec<_>>()),
        dtype in select(Dtype::ALL),
        (addmm, transpose) in any::<(bool, bool)>(),
        (m, n, k) in (1..40_u32, size(20_000), size(40_000)),
        batch in 1..4_u32,
    ) {
        let problem = Dense { architecture, dtype, addmm, transpose, m, n, k, batch };
        let plan = dispatch_plan::dense(&problem, Policy::EXACT.all()).unwrap();
        let streamed = plan.way == DenseWay::Streamed;
        prop_assert_eq!(DENSE.contains(&plan.kernel), streamed, "{}", plan.kernel);
    }

    #[test]
    fn no_block_of_attention_asks_for_another(
        architecture in select(Architecture::all().collect::<Vec<_>>()),
        dtype in select(Dtype::ALL),
        policy in select(Policy::KINDS),
        (gqa, kv_heads) in (1..20_u32, 1..4_u32),
        head_dim in select(vec![64, 80, 96, 128, 192, 256, 512]),
        other in select(vec![None, Some(64), Some(128)]),
        (rows, more) in (1..20_u32, size(70_000)),
        (causal, mask, sinks) in any::<(bool, bool, bool)>(),
    ) {
        let problem = Attention {
            architecture,
            dtype,
            heads: gqa * kv_heads,
            kv_heads,
            head_dim,
            value_dim: other.unwrap_or(head_dim),
            keys: rows + more,
            rows,
            causal,
            mask,
            sinks,
        };
        for group in dispatch_plan::attention(&problem, policy.all()).unwrap().groups {
            if let Some(kernel) = group.kernel {
                prop_assert!(ATTENTION.contains(&kernel), "{}", kernel);
            }
        }
    }
}
