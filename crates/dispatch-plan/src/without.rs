//! In the place of `decide.rs` in a build without a C++ compiler.

use mlx_terms::{Policy, PolicyKind, Route};

use crate::attention::{Attention, Way};
use crate::dense::{Dense, DenseAlone, DenseWay};
use crate::kernel::Decision;
use crate::{Error, Problem};

/// What `mlx_row_attention` would have.
#[allow(dead_code, reason = "nothing reads it here")]
pub(crate) struct RawAttention {
    pub(crate) causal: i32,
    pub(crate) mask: i32,
    pub(crate) sinks: i32,
    pub(crate) size_class: i32,
    pub(crate) threads: i32,
    pub(crate) blocks: i32,
}

pub(crate) struct AttentionRow {
    pub(crate) keys: u32,
    pub(crate) way: Way,
    pub(crate) blocks: u32,
    pub(crate) end: u32,
}

pub(crate) struct DenseDecision {
    pub(crate) way: DenseWay,
    pub(crate) alone: DenseAlone,
    pub(crate) tile_of_alone: [i32; 6],
    pub(crate) tile: u32,
    pub(crate) identical: bool,
}

pub(crate) fn decide(_: &Problem, _: Policy, _: &[Route]) -> Result<Decision, Error> {
    Err(Error::Unavailable)
}

pub(crate) fn plan_attention(
    _: &Attention,
    _: &RawAttention,
    _: PolicyKind,
    _: &[u8],
) -> Result<Vec<AttentionRow>, Error> {
    Err(Error::Unavailable)
}

pub(crate) fn decide_dense(_: &Dense, _: Policy) -> Result<DenseDecision, Error> {
    Err(Error::Unavailable)
}
