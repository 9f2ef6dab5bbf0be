//! The kernel side of the simulated Metal device: a compiler from Metal Shading Language to host
//! code, one kernel at a time.
//!
//! [`metal`] does what Apple's `metal` command does at build time: it preprocesses sources and
//! links them into a [`Library`]. [`Compiler`] is the counterpart of Apple's compiler service: for
//! a name in a library it builds a shared object that the device runtime loads
//! (`abi/kernel_abi.h`), and caches it by content.

mod cache;
mod check;
mod compile;
mod device;
mod error;
mod items;
mod language;
mod lexer;
mod library;
mod lower;
mod metal;
mod parse;
mod shim;
mod toolchain;
pub mod trace;

pub use cache::{default_folder as default_cache_folder, folder_in as cache_folder};
pub use check::{Finding, Verdict};
pub use compile::{Compiler, Options};
pub use device::{Device, Reduction};
pub use error::Error;
pub use language::Version;
pub use library::{Entry, Library, SourceText};
pub use metal::{
    kernel_functions, library_from_text, library_of_tree, library_of_version, metal, metallib,
};
pub use mlx_terms::{Architecture, SizeClass};
pub use toolchain::{Contraction, Toolchain, Variant};
