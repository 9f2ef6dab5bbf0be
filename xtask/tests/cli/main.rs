//! The command line as a user sees it: what it prints, what it leaves, and its exit code (0 done, 1 failed, 2 usage).

#![allow(clippy::unwrap_used, reason = "a test helper may panic")]

mod build;
mod bump_pin;
mod bundle;
mod check;
mod doctor;
mod edits;
mod env;
mod fetch;
mod patch;
#[path = "../support/stamp.rs"]
mod stamp;
mod stdout;
mod support;
mod upstream;
