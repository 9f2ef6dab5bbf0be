//! `qmv-lab`: see the library for what each command does. This file only parses and dispatches.

mod cli;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Do quantized products of several rows keep their bits, what does it cost, and which kernel pays?
#[derive(Parser)]
#[command(name = "qmv-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Probe(cli::probe::Args),
    Bench(cli::bench::Args),
    Calibrate(cli::calibrate::Args),
    Decode(cli::decode::Args),
    Mixed(cli::mixed::Args),
    /// Measure for a `bench --against` of another build
    #[command(hide = true)]
    ServeBench,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Probe(args) => cli::probe::run(args),
        Command::Bench(args) => cli::bench::run(args),
        Command::Calibrate(args) => cli::calibrate::run(args),
        Command::Decode(args) => cli::decode::run(args),
        Command::Mixed(args) => cli::mixed::run(args),
        Command::ServeBench => cli::bench::serve(),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
