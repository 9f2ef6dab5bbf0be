//! In the place of `decide.rs` in a build without a C++ compiler.

use mlx_terms::{Policy, Route};

use crate::kernel::Decision;
use crate::{Error, Problem};

pub(crate) fn decide(_: &Problem, _: Policy, _: &[Route]) -> Result<Decision, Error> {
    Err(Error::Unavailable)
}
