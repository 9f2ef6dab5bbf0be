//! `cargo xtask build` with fake programs in place of the machine's own.

#![allow(clippy::unwrap_used, reason = "a test helper may panic")]

mod cuda;
mod linux;
mod macos;
mod requirements;
#[path = "../support/scratch.rs"]
mod scratch;
mod support;
