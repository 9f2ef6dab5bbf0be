//! The engine of mlx-overlay: a pinned MLX, verified by its git tree id, and a strict series of patches on it.
//!
//! The modules follow the data. [`manifest`] has the pin and the sources that may provide it, [`sources`] fetches it
//! into a [`store`], [`series`] turns the patches into a chain of trees, [`lock`] has their ids, [`state`] reports the
//! state of `vendor/mlx`, and [`apply`] builds the new tree next to it and swaps the two. [`edit`] and [`bump`] change
//! the patches and the pin, [`watch`] reports upstream's changes to the code that the patches depend on, and [`check`]
//! checks whether all of it is in order. Code that needs pin, patches and lock opens a [`Project`].
//!
//! Folders: `tree` (files and their ids), `place` (paths of a checkout and how their content changes), `model` (the
//! project's files), `sources`, `work` (on the patches). The engine prints nothing: errors are typed ([`Error`]) and
//! report facts, and progress goes to a callback ([`progress`]).

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests start what they need and look at its end themselves"
    )
)]

pub mod apply;
pub mod check;
pub mod error;
pub mod fetch;
pub mod place;
pub mod progress;
pub mod project;
pub mod sources;
pub mod state;
pub mod tree;
pub mod watch;

mod model;
mod process;
mod read;
mod work;

pub use error::{Error, Result};
pub use git2::Oid;
pub use model::manifest::Manifest;
pub use model::{lock, manifest, patch, series};
pub use place::workspace::Workspace;
pub use project::Project;
pub use sources::{inputs, store};
pub use tree::path;
pub use work::{bump, edit, upstream};

#[cfg(test)]
mod tests;
