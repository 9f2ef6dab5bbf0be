//! The engine of mlx-overlay: a pinned MLX, verified by its git tree id, and a strict series of patches on it.
//!
//! The way through the modules is the way of the data: [`manifest`] says what is pinned and who may bring it,
//! [`source`] fetches it into a [`store`], [`series`] turns the patches into a chain of trees, [`state`] says what
//! `vendor/mlx` holds now, [`apply`] builds the wanted tree beside it and swaps the two. [`bump`] moves the pin, and
//! [`watch`] tells what upstream did to the code that the patches rest on.
//!
//! Nothing here prints: errors are typed ([`Error`]), progress goes to a callback ([`progress`]).

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests start what they need and look at its end themselves"
    )
)]

pub mod apply;
pub mod bump;
pub mod edit;
pub mod error;
pub mod fetch;
pub mod inputs;
pub mod lint;
pub mod lock;
pub mod manifest;
pub mod patch;
pub mod path;
pub mod place;
pub mod progress;
pub mod series;
pub mod source;
pub mod state;
pub mod store;
pub mod tree;
pub mod upstream;
pub mod watch;
pub mod workspace;

mod fs;
mod journal;
mod process;
mod step;
mod swap;
mod workbench;

pub use error::{Error, Result};
pub use git2::Oid;
pub use manifest::Manifest;
pub use workspace::Workspace;

#[cfg(test)]
mod tests;
