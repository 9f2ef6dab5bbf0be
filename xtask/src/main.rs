//! `cargo xtask`: fetches MLX, applies the overlay, builds it and tests it.
//!
//! This file only parses the command line and dispatches; each subcommand has its own module.

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

// Each is documented on its `Args`.
#[derive(Subcommand)]
enum Command {
    Fetch(fetch::Args),
    ApplyOverlay(apply_overlay::Args),
    BumpPin(bump_pin::Args),
    Patch(patch::Args),
    Upstream(upstream::Args),
    Status(status::Args),
    #[command(alias = "verify")]
    Check(check::Args),
    Build(build::Args),
    Bundle(bundle::Args),
    Doctor(doctor::Args),
    Env(env::Args),
    Plan(plan::Args),
    Kernels(kernels::Args),
    Quickstart(quickstart::Args),
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
