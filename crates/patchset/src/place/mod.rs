//! The paths of a checkout, and how their content changes: in one step, or not at all.

pub(crate) mod disk;
pub(crate) mod exchange;
pub mod holder;
pub(crate) mod journal;
pub(crate) mod scratch;
pub(crate) mod step;
pub(crate) mod vendor;
pub(crate) mod workspace;

pub use disk::write_tree;
pub use exchange::{put, recover};
pub use scratch::Scratch;
