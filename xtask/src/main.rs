//! `cargo xtask`: fetches MLX, applies the overlay, builds it and tests it.
//!
//! This file only parses the command line and dispatches; each subcommand has a module of its own.

#![allow(unreachable_code)]
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about, version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {}
}
