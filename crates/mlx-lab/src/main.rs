//! `mlx-lab`: see the library for its commands. This file parses arguments and calls the commands.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Check whether quantized products of several rows keep their bits, and measure the cost
#[derive(Parser)]
#[command(name = "mlx-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Probe(commands::probe::Args),
    Bench(commands::bench::Args),
    Calibrate(commands::calibrate::Args),
    Mixed(commands::mixed::Args),
    /// Measure for the `bench --against` of another build
    #[command(hide = true)]
    ServeBench,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Probe(args) => commands::probe::run(args),
        Command::Bench(args) => commands::bench::run(args),
        Command::Calibrate(args) => commands::calibrate::run(args),
        Command::Mixed(args) => commands::mixed::run(args),
        Command::ServeBench => commands::bench::serve(),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
