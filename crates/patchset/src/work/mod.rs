//! Work on the patches: edited as commits, taken to another pin, prepared for upstream.

pub mod bump;
pub mod edit;
pub mod upstream;

pub(crate) mod hunks;
pub(crate) mod memory;
pub(crate) mod merge;
pub(crate) mod renames;
mod rewrite;
mod workbench;
