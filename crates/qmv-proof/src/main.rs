//! `cargo run -p qmv-proof -- --tier full --report docs/proofs/identity.md`, and the same with `--modes fp` and
//! `docs/proofs/identity-fp.md`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use metal_sim::{Compiler, Contraction, Options, Toolchain, Variant, default_cache_folder};
use qmv_proof::{
    Driver, Modes, Prefix, SEEDS, Tier, control, differing, groups, kernels, render, run,
};

/// Evaluates the matrix of row identity on the simulated device.
///
/// Needs `cargo xtask build --backend sim`, and with `--pristine` also `cargo xtask build --backend
/// sim --pristine`.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// How much of the matrix.
    #[arg(long, value_enum, default_value = "core")]
    tier: TierName,
    /// Which weights.
    #[arg(long, value_enum, default_value = "affine")]
    modes: ModesName,
    /// Evaluate the rows alone on a library built from the pristine pin as well.
    #[arg(long)]
    pristine: bool,
    /// Processes at a time.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Start nothing new after so many seconds, and report what was reached.
    #[arg(long)]
    limit: Option<u64>,
    /// Write the outcome here, as Markdown.
    #[arg(long)]
    report: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TierName {
    Core,
    Full,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModesName {
    /// Affine.
    Affine,
    /// mxfp4, mxfp8 and nvfp4.
    Fp,
}

fn main() -> ExitCode {
    match prove(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn prove(cli: &Cli) -> Result<()> {
    let start = Instant::now();
    let prefix = Prefix::patched()?;
    let reference = if cli.pristine {
        Some(Driver::build(&Prefix::pristine()?)?)
    } else {
        None
    };
    let driver = Driver::build(&prefix)?;
    let (tier, name) = match cli.tier {
        TierName::Core => (Tier::Core, "core"),
        TierName::Full => (Tier::Full, "full"),
    };
    let (modes, modes_option) = match cli.modes {
        ModesName::Affine => (Modes::Affine, ""),
        ModesName::Fp => (Modes::Fp, " --modes fp"),
    };
    let groups = groups(tier, modes)?;
    let control = match modes {
        Modes::Affine => None,
        Modes::Fp => Some(control(SEEDS)),
    };
    for contraction in [Contraction::Fused, Contraction::Split] {
        let mut names = BTreeSet::new();
        for group in groups
            .iter()
            .chain(&control)
            .filter(|group| group.contraction == contraction)
        {
            names.extend(kernels(group)?);
        }
        warm(&prefix, contraction, names)?;
    }
    eprintln!("kernels compiled after {:.0?}", start.elapsed());
    let deadline = cli
        .limit
        .map(|seconds| start + Duration::from_secs(seconds));
    let mut outcome = run(&driver, reference.as_ref(), &groups, cli.jobs, deadline)?;
    if let Some(control) = &control {
        outcome.control = differing(&driver, control)?;
    }
    let total = outcome.total();
    println!(
        "{} of {} cases, {} products, {} outputs, {} differing, {} findings in {:.0?}",
        outcome.cases[0],
        outcome.cases[1],
        total.products,
        total.outputs,
        total.differing,
        outcome.findings.len(),
        start.elapsed()
    );
    for finding in outcome.findings.iter().take(20) {
        println!("{finding}");
    }
    if let Some(file) = &cli.report {
        let command = format!(
            "cargo run -p qmv-proof -- --tier {name}{modes_option}{} --report {}",
            if cli.pristine { " --pristine" } else { "" },
            file.display()
        );
        fs_err::write(
            file,
            render(&outcome, &prefix.stamp, cli.pristine, &command),
        )?;
    }
    if !outcome.findings.is_empty() {
        bail!("{} findings", outcome.findings.len());
    }
    Ok(())
}

/// Compiles, on all cores, kernels that would else be compiled one after another by each process that meets them.
fn warm(prefix: &Prefix, contraction: Contraction, names: BTreeSet<String>) -> Result<()> {
    let options = Options {
        contraction,
        variant: Variant::Plain,
    };
    let compiler = Compiler::new(Toolchain::find(default_cache_folder())?, options);
    let names: Vec<String> = names.into_iter().collect();
    let failures = compiler.warm(&prefix.metallib()?, &names)?;
    if let Some((name, error)) = failures.first() {
        bail!("{} kernels do not compile; {name}: {error}", failures.len());
    }
    Ok(())
}
