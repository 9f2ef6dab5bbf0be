//! Which kernel MLX's Metal back-end gives a quantized product, how often that kernel reads the weights, and whether
//! each row keeps the bits of its M = 1 result.
//!
//! The answer comes from `patches/files/mlx/backend/metal/qmv_plan.cpp`, the file that the dispatch itself consults; it
//! needs neither a device nor a built MLX.

#![warn(missing_docs)]

mod closure;
#[cfg(not(without_plan))]
mod ffi;
mod types;

pub use closure::kernels;
pub use types::{Architecture, Dtype, Mode, Op, Path, Plan, Policy, Problem, Route};

/// What can be wrong with a question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field of the problem or of a route is out of its range.
    #[error("{0}")]
    Invalid(String),
    /// A name that none of the values of its kind has.
    #[error("{kind} must be one of {expected}, found \"{found}\"")]
    UnknownName {
        /// What was named.
        kind: &'static str,
        /// The names that there are.
        expected: String,
        /// What was found instead.
        found: String,
    },
    /// This build of the crate found no C++ compiler.
    #[error(
        "this build has no dispatch plan: no C++ compiler was found; install one (`cargo xtask quickstart --install-deps`) and try again"
    )]
    Unavailable,
}

/// The plan of a product under a policy, with a routing table (empty: none).
///
/// # Errors
///
/// Names the field that is out of its range.
#[cfg(not(without_plan))]
pub fn plan(problem: &Problem, policy: Policy, routes: &[Route]) -> Result<Plan, Error> {
    let raw = problem.to_ffi()?;
    let raw_routes: Vec<_> = routes.iter().map(|route| route.to_ffi()).collect();
    let mut plan = std::mem::MaybeUninit::uninit();
    // SAFETY: the pointers are valid for the call, `route_count` is the length behind `routes`, and the layouts are
    // those of the C header.
    let status = unsafe {
        ffi::mlx_qmv_plan_product(
            &raw,
            policy as i32,
            raw_routes.as_ptr(),
            raw_routes.len(),
            plan.as_mut_ptr(),
        )
    };
    if status != 0 {
        return Err(last_error());
    }
    // SAFETY: on success the function has written the plan.
    Ok(Plan::from_ffi(unsafe { plan.assume_init_ref() }))
}

/// Without a C++ compiler at build time.
///
/// # Errors
///
/// Always.
#[cfg(without_plan)]
pub fn plan(_: &Problem, _: Policy, _: &[Route]) -> Result<Plan, Error> {
    Err(Error::Unavailable)
}

#[cfg(not(without_plan))]
fn last_error() -> Error {
    // SAFETY: the function returns a NUL-terminated string that lives until this thread's next failed call.
    let message = unsafe { std::ffi::CStr::from_ptr(ffi::mlx_qmv_last_error()) };
    Error::Invalid(message.to_string_lossy().into_owned())
}
