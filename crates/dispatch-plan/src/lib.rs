//! Which kernels MLX's Metal back-end takes for quantized products, attention and dense products, how often they read
//! the weights, and whether each row has the same bits as alone.
//!
//! The overlay's decisions come from its own files, `patches/files/mlx/row_policy.cpp` and `qmv_plan.cpp`,
//! `attention_plan.cpp` and `dense_plan.cpp` in `backend/metal`, compiled here unchanged. What follows from a decision,
//! and MLX's own rules, are described here; tests compare them with the simulated device's trace. Neither a device nor
//! a built MLX is needed.

mod attention;
mod closure;
#[cfg_attr(without_plan, path = "without.rs")]
mod decide;
mod dense;
mod kernel;
mod plan;
mod problem;
mod upstream;

pub use attention::{Attention, AttentionPlan, Group, Way, attention};
pub use closure::{attention_kernels, dense_kernels, kernels};
pub use dense::{Dense, DenseAlone, DensePlan, DenseWay, dense};
pub use kernel::{Decision, function_of};
pub use mlx_terms::{
    Architecture, Format, Mode, Path, Policy, PolicyError, PolicyKind, Route, RoutePath, SizeClass,
    UnknownName,
};
pub use plan::{Plan, plan};
pub use problem::{Dtype, Op, Problem};

/// An error in a problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field of the problem or of a route is out of its range.
    #[error("{0}")]
    Invalid(String),
    /// This build of the crate found no C++ compiler.
    #[error(
        "this build has no dispatch plan: no C++ compiler was found; install one (`cargo xtask quickstart --install-deps`) and try again"
    )]
    Unavailable,
}
