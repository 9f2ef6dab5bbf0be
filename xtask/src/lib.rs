//! The subcommands of `cargo xtask`, one module each. A library, so that tests can call them.

pub mod apply_overlay;
pub mod build;
pub mod bump_pin;
pub mod bundle;
pub mod check;
pub mod doctor;
pub mod env;
pub mod fetch;
pub mod host;
pub mod kernels;
pub mod patch;
pub mod plan;
pub mod proc;
pub mod quickstart;
pub mod remedy;
pub mod requirements;
pub mod status;
pub mod test;
pub mod upstream;

mod cargo;
mod demonstration;
mod files;
mod progress;
mod steps;

use std::fmt;

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use patchset::Workspace;

/// An error that was already printed: `main` prints nothing more and exits with 1.
#[derive(Debug)]
pub struct Reported;

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failed (see above)")
    }
}

impl std::error::Error for Reported {}

/// Arguments that clap accepts but that exclude each other: `main` exits with 2, as clap does.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The root of the checkout around the current folder.
fn root() -> Result<Utf8PathBuf> {
    Ok(Workspace::discover()?.root().to_owned())
}

/// The checkout whose files a build uses: the one around the current folder. Cargo does not compile this program again
/// if its checkout was moved or copied, so the folder that it was compiled in may be another one. Tests run in folders
/// without a checkout, and use that one.
fn checkout() -> Utf8PathBuf {
    let compiled = Utf8Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    root()
        .ok()
        .filter(|root| root.join("xtask/cmake").is_dir())
        .unwrap_or_else(|| compiled.to_owned())
}

/// The path of this program.
fn this_program() -> Result<Utf8PathBuf> {
    let path = std::env::current_exe().context("cannot find this program's own path")?;
    Utf8PathBuf::from_path_buf(path)
        .map_err(|path| anyhow::anyhow!("{} is not UTF-8", path.display()))
}
