//! The terms that the crates of mlx-overlay share: GPU architectures, quantization formats, policies for rows, routes.
//!
//! Numbers and names of [`Mode`], [`PolicyKind`], [`Primitive`] and [`Path`] are those in `mlx/row_policy.h`; tests of
//! `dispatch-plan` compare the two.

#![warn(missing_docs)]

mod architecture;
mod count;
mod format;
mod named;
mod policy;
mod route;

pub use architecture::{Architecture, SizeClass, UnknownArchitecture};
pub use count::DispatchCount;
pub use format::{Format, FormatError, Mode};
pub use named::UnknownName;
pub use policy::{Path, Policy, PolicyError, PolicyKind, Primitive};
pub use route::{Route, RoutePath};
