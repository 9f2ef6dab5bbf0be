//! How a dense product is computed: `backend/metal/dense_plan.cpp`, and MLX's own choice.

use mlx_terms::{Architecture, Policy, named};

use crate::decide::decide_dense;
use crate::{Dtype, Error};

named! {
    /// How the rows of a dense product are computed.
    "way" DenseWay {
        /// All at once, with the kernel that MLX chooses.
        Upstream => "upstream",
        /// One after the other, as MLX computes each alone.
        ByRow => "by-row",
        /// `gemv_rows` or `gemv_t_rows`.
        Streamed => "gemv_rows",
    }
}

named! {
    /// The kernel for one row of a dense product alone.
    "kernel" DenseAlone {
        /// `gemv`.
        Gemv => "gemv",
        /// `gemv_t`.
        GemvT => "gemv_t",
        /// `dot_product`.
        Dot => "dot",
        /// A kernel for several rows: heads that MLX folds into rows.
        Fold => "fold",
    }
}

/// The decision about a dense product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DenseDecision {
    pub(crate) way: DenseWay,
    pub(crate) alone: DenseAlone,
    pub(crate) tile_of_alone: [i32; 6],
    pub(crate) tile: u32,
    pub(crate) identical: bool,
}

/// A dense product: x of (batch, m, k) times weights of n outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dense {
    pub architecture: Architecture,
    /// The type of operands and result.
    pub dtype: Dtype,
    /// Whether something is added (`addmm`).
    pub addmm: bool,
    /// Whether the weights are (n, k), as in a linear layer.
    pub transpose: bool,
    /// Rows of x that use the same weights.
    pub m: u32,
    /// Outputs per row.
    pub n: u32,
    /// Values per row.
    pub k: u32,
    /// Products, each with its own weights.
    pub batch: u32,
}

/// How a dense product is computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DensePlan {
    pub way: DenseWay,
    /// The kernel for a row alone.
    pub alone: DenseAlone,
    /// The kernel, without the suffixes of its function constants; the family's name if MLX chooses among many.
    pub kernel: String,
    /// Rows per threadgroup; 0 if MLX's kernels decide.
    pub tile: u32,
    /// Dispatches of that kernel.
    pub dispatches: u32,
    /// How often the weights are read; 0 if MLX's kernels decide.
    pub weight_passes: u32,
    /// Whether every row has the same bits as alone.
    pub identical: bool,
}

/// How a dense product is computed under a policy.
///
/// # Errors
/// [`Error::Invalid`] for invalid sizes, [`Error::Unavailable`] in a build without a C++ compiler.
pub fn dense(problem: &Dense, policy: Policy) -> Result<DensePlan, Error> {
    let decided = decide_dense(problem, policy)?;
    let [bm, bn, sm, sn, tm, tn] = decided.tile_of_alone;
    let name = |function: &str| {
        format!(
            "{function}_{}_bm{bm}_bn{bn}_sm{sm}_sn{sn}_tm{tm}_tn{tn}",
            problem.dtype
        )
    };
    let alone = match decided.alone {
        DenseAlone::Gemv => name("gemv"),
        DenseAlone::GemvT => name("gemv_t"),
        DenseAlone::Dot => "dot_product".to_owned(),
        DenseAlone::Fold => "steel_gemm".to_owned(),
    };
    let (kernel, dispatches, weight_passes) = match decided.way {
        DenseWay::Upstream if problem.m == 1 => (alone, 1, 1),
        DenseWay::Upstream => (upstream(problem).to_owned(), 1, 0),
        DenseWay::ByRow => (alone, problem.m, problem.m),
        DenseWay::Streamed => {
            let function = if decided.alone == DenseAlone::GemvT {
                "gemv_t_rows"
            } else {
                "gemv_rows"
            };
            let kernel = format!("{}_nv{}", name(function), decided.tile);
            (kernel, 1, problem.m.div_ceil(decided.tile.max(1)))
        }
    };
    Ok(DensePlan {
        way: decided.way,
        alone: decided.alone,
        kernel,
        tile: decided.tile,
        dispatches,
        weight_passes,
        identical: decided.identical,
    })
}

/// The family of kernels that MLX takes for several rows (`Matmul::eval_gpu`, `gemv_wide_config`).
fn upstream(problem: &Dense) -> &'static str {
    let wide = problem.architecture.generation() >= 15
        && problem.transpose
        && problem.dtype != Dtype::Float32
        && problem.k.is_multiple_of(4)
        && problem.m <= 15;
    if problem.n == 1 {
        "gemv"
    } else if wide {
        "gemv_wide"
    } else {
        "steel_gemm"
    }
}
