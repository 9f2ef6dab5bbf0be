//! `mlx-lab`: see the library for what each command does. This file only parses and dispatches.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Do quantized products of several rows keep their bits, what does it cost, and which kernel pays?
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
    /// Measure for a `bench --against` of another build
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
