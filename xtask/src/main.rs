//! `cargo xtask`: fetches MLX, applies the overlay, builds it and tests it.
//!
//! This file only parses the command line and dispatches; each subcommand has a module of its own.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{
    Reported, Usage, apply_overlay, build, bump_pin, bundle, check, doctor, env, fetch, kernels,
    patch, plan, quickstart, remedy, status, test, upstream,
};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about, version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fetch and verify the pinned MLX and its build inputs
    Fetch(fetch::Args),
    /// Make vendor/mlx: the pinned MLX with the overlay
    ApplyOverlay(apply_overlay::Args),
    /// Move the pin to another MLX and put every patch onto it
    BumpPin(bump_pin::Args),
    /// Edit, export, list and check the patches
    Patch(patch::Args),
    /// Make the bundle of a pull request to MLX; pushes and opens nothing
    Upstream(upstream::Args),
    /// Say what vendor/mlx holds, patch by patch
    Status(status::Args),
    /// Check that the pin, the patches, the lock and the patched sources are in order
    #[command(alias = "verify")]
    Check(check::Args),
    /// Build MLX with the overlay and install it below target/mlx
    Build(build::Args),
    /// Make a built MLX a folder or archive that can be moved
    Bundle(bundle::Args),
    /// Look for what keeps MLX from being built, linked or run here
    Doctor(doctor::Args),
    /// Print the settings with which other bindings use the patched MLX
    Env(env::Args),
    /// Say which kernel a quantized product takes as its rows grow
    Plan(plan::Args),
    /// Say which kernels the sources instantiate, a library holds, and the dispatch can ask for
    Kernels(kernels::Args),
    /// From nothing to a program that runs on the patched MLX
    Quickstart(quickstart::Args),
    /// Build, check and test everything on this machine
    Test(test::Args),
    #[command(hide = true)]
    RunCmake(build::cmake::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Fetch(args) => fetch::run(args),
        Command::ApplyOverlay(args) => apply_overlay::run(args),
        Command::BumpPin(args) => bump_pin::run(args),
        Command::Patch(args) => patch::run(args),
        Command::Upstream(args) => upstream::run(args),
        Command::Status(args) => status::run(args),
        Command::Build(args) => build::run(args),
        Command::Bundle(args) => bundle::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Env(args) => env::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Kernels(args) => kernels::run(args),
        Command::Quickstart(args) => quickstart::run(args),
        Command::Test(args) => test::run(args),
        Command::Check(args) => check::run(args),
        Command::RunCmake(args) => build::cmake::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is::<Reported>() {
                eprintln!("error: {}", remedy::shown(&error));
            }
            if error.is::<Usage>() {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}
