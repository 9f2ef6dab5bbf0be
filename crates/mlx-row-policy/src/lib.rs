#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod error;
mod plan;
mod stream;
mod sys;

pub use error::{Error, Result};
pub use mlx_terms::{
    DispatchCount, Format, FormatError, Mode, Path, Policy, PolicyError, PolicyKind, UnknownName,
};
pub use plan::{DispatchPlan, FloatType, dispatch_stats, reset_dispatch_stats};
pub use stream::Stream;

/// Whether the linked MLX has kernels for policies: the overlay's Metal back-end has.
///
/// # Errors
///
/// [`Error::NoOverlay`] if the program links no MLX with the overlay, [`Error::LeftOut`] if the linker left it out.
pub fn has_policies() -> Result<bool> {
    let outcome = sys::has_kernels();
    match sys::absent() {
        Some(function) => Err(Error::of_absent(function)),
        None => Ok(outcome == 1),
    }
}

/// The process's policy, for operations for which neither their stream nor a hook decides: the value of the environment
/// variable `MLX_ROW_POLICY` when it was first needed, else [`Policy::DEFAULT`].
///
/// # Errors
///
/// [`Error::Mlx`] if the variable is not a valid policy; [`Error::NoOverlay`].
pub fn process_policy() -> Result<Policy> {
    let mut numbers = [0; 2];
    Error::check(sys::process_policy(&mut numbers))?;
    policy_of(numbers)
}

fn policy_of(numbers: [i32; 2]) -> Result<Policy> {
    Policy::from_numbers(numbers)
        .ok_or_else(|| Error::Mlx(format!("no policy has the numbers {numbers:?}")))
}
