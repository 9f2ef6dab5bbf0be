//! MLX's own rules, for plans made without a device. In the tree the dispatch asks MLX itself; a test of `proofs`
//! compares these rules with its results on the simulated device.

use mlx_terms::{Mode, SizeClass};

use crate::{Dtype, Op, Problem};

/// `get_qmv_batch_limit` in `quantized.cpp`, and what its callers use without `transpose`: the number of rows from
/// which matrix kernels are used.
pub(crate) fn batch_limit(problem: &Problem) -> u32 {
    if !problem.transpose {
        return 4;
    }
    let generation = problem.architecture.generation();
    let class = problem.architecture.class();
    let largest = problem.k.max(problem.n);
    let by_size = |[small, medium, large]: [u32; 3]| match largest {
        0..=2048 => small,
        2049..=4096 => medium,
        _ => large,
    };
    by_size(match (generation, class) {
        (_, SizeClass::Ultra) => [32, 18, 12],
        (17.., _) => [33, 25, 13],
        (15.., _) => [13, 15, 13],
        (13, SizeClass::Max) => [14, 10, 7],
        _ => [14, 10, 6],
    })
}

/// Whether MLX has matrix kernels for a product. For the primitives that quantize x it has them only with a global
/// scale and bfloat16 (`QQMatmul::eval_gpu`, `GatherQQMM::eval_gpu`).
pub(crate) fn has_matrix_kernels(problem: &Problem) -> bool {
    let k_alignment = match problem.op {
        Op::QuantizedMatmul | Op::GatherQmm => return true,
        Op::GatherQqmm if problem.nax => 64,
        Op::QqMatmul | Op::GatherQqmm => 32,
    };
    // qqmm has them only for matrices.
    (problem.op == Op::GatherQqmm || problem.batch <= 1)
        && problem.global_scale
        && problem.dtype == Dtype::Bfloat16
        && problem.k.is_multiple_of(k_alignment)
}

/// `use_qmv_wide`, and no global scale.
pub(crate) fn prefers_wide(problem: &Problem) -> bool {
    !problem.global_scale
        && (problem.mode != Mode::Affine || problem.architecture.generation() >= 15)
}

/// Whether `qmv_fast` accepts K: a multiple of `qmv_fast_k_alignment`.
pub(crate) fn is_fast(problem: &Problem) -> bool {
    // get_pack_factor(bits, 32) in quantized.h.
    let pack_factor = match problem.bits {
        3 | 5 => 8,
        6 => 4,
        bits => 32 / bits,
    };
    let packs = if problem.bits == 2 { 1 } else { 2 };
    problem.k.is_multiple_of(pack_factor * packs * 32)
}

/// The parts into which `qmm_splitk` splits K; 1 if it calls `qmm` instead.
pub(crate) fn split_k(problem: &Problem) -> u32 {
    let alignment = problem.group_size.max(32);
    let tiles = problem
        .n
        .div_ceil(32)
        .saturating_mul(problem.m.div_ceil(32));
    let mut parts = (512 / tiles.max(1)).max(1).min(problem.k / alignment);
    while parts > 1 && !problem.k.is_multiple_of(parts * alignment) {
        parts -= 1;
    }
    parts
}
