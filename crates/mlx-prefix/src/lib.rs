//! The metadata of a built MLX, and how a built MLX is found.
//!
//! `cargo xtask build` of mlx-overlay installs MLX into a *prefix*; `cargo xtask bundle` makes a copy that can be
//! moved. Both contain a [`Stamp`] (`mlx-overlay.toml`) and a list of checksums (`MANIFEST.sha256`, module `sums`). A
//! prefix may be linked only if it was built from the tree in `mlx.lock` ([`Ids`]) and everything that its stamp lists
//! exists. [`Search`] finds it.
//!
//! Errors state what was expected and what was found. The program adds the remedy.

#![warn(missing_docs)]

mod error;
mod lock;
mod names;
mod search;
mod stamp;
#[cfg(feature = "sums")]
pub mod sums;

pub use error::{Error, Found, Result};
pub use lock::Ids;
pub use names::{BUILDS, CURRENT, PREFIX_VARIABLE, PRISTINE_VARIABLE};
pub use search::{Prefix, Search, built};
pub use stamp::{Backend, Stamp, UnknownBackend};

use std::path::Path;

use serde::de::DeserializeOwned;

/// Reads a whole file as text.
fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| Error::file(path, error))
}

fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| Error::Invalid {
        path: path.to_owned(),
        // Only the message: the full text shows the faulty line too, and has several lines.
        message: error.message().replace('\n', " "),
    })
}
