//! Replaces `decide.rs` in a build without a C++ compiler.

use mlx_terms::{Policy, PolicyKind, Route};

use crate::attention::{Attention, AttentionRow, RawAttention};
use crate::dense::{Dense, DenseDecision};
use crate::kernel::Decision;
use crate::{Error, Problem};

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
