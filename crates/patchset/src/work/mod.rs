//! Work on the patches: edit them as commits, move them to another pin, prepare them for upstream.

pub mod bump;
pub mod edit;
pub mod upstream;

pub(crate) mod hunks;
pub(crate) mod memory;
pub(crate) mod merge;
pub(crate) mod renames;
mod rewrite;
mod workbench;
