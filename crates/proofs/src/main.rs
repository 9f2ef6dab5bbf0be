//! `cargo run -p proofs -- identity --tier full --report docs/reports/proofs/identity.md`, and the same with `--modes
//! fp` and `docs/reports/proofs/identity-fp.md`; `cap`; `accuracy --report docs/reports/proofs/accuracy.md`;
//! `operations attention --tier full --processes 2 --done target/attention.jsonl --report
//! docs/reports/proofs/attention.md`, the same with `dense` and `rest`; `names`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use cli::{print, println};
use dispatch_plan::Dtype;
use metal_sim::{Compiler, Contraction, Options, Toolchain, Variant, default_cache_folder};
use proofs::{
    Accuracy, BITS, Driver, Family, Modes, Prefix, SEEDS, Tier, architectures, check_names,
    compare, compare_with_pristine, control, differing, groups, jobs, kernels, render,
    render_operations, run,
};

/// Test what the quantized kernels promise, on the simulated device.
///
/// Needs `cargo xtask build --backend sim`; comparisons with pristine MLX also need `cargo xtask build --backend sim
/// --pristine`.
#[derive(Debug, Parser)]
#[command(version)]
enum Cli {
    /// Check that every row of several has the same bits as alone
    Identity(Identity),
    /// Check that tiles of eight rows give the same bits as pristine MLX's tiles of five
    Cap,
    /// Check that every row of a block of attention, dense products and other operations has the same bits as alone
    Operations(Operations),
    /// Check that a block of attention dispatches the same kernels as its rows alone
    Names {
        /// Numbers of keys within this distance of each threshold.
        #[arg(long, default_value_t = 5)]
        around: u32,
    },
    /// Measure the error of each policy compared with float64
    Accuracy {
        /// Write the table here, as Markdown.
        #[arg(long)]
        report: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
struct Identity {
    /// Which cases to run.
    #[arg(long, value_enum, default_value = "core")]
    tier: TierName,
    /// Which weights.
    #[arg(long, value_enum, default_value = "affine")]
    modes: ModesName,
    /// Also evaluate the rows alone on a library built from the pristine pin.
    #[arg(long)]
    pristine: bool,
    /// Parallel processes.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Start nothing new after this many seconds, and report the results so far.
    #[arg(long)]
    limit: Option<u64>,
    /// Write the results here, as Markdown.
    #[arg(long)]
    report: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Operations {
    /// Which operations.
    #[arg(value_enum)]
    family: Family,
    /// Which cases to run.
    #[arg(long, value_enum, default_value = "core")]
    tier: TierName,
    /// Parallel processes.
    #[arg(long, default_value_t = 1)]
    processes: usize,
    /// Keep results in this file and skip the cases that it already has, so that a stopped run can continue.
    #[arg(long)]
    done: Option<PathBuf>,
    /// Start nothing new after this many seconds, and report the results so far.
    #[arg(long)]
    limit: Option<u64>,
    /// Write the results here, as Markdown.
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
    /// Affine weights.
    Affine,
    /// mxfp4, mxfp8 and nvfp4.
    Fp,
}

fn main() -> ExitCode {
    let result = match Cli::parse() {
        Cli::Identity(arguments) => identity(&arguments),
        Cli::Operations(arguments) => operations(&arguments),
        Cli::Names { around } => names(around),
        Cli::Cap => cap(),
        Cli::Accuracy { report } => accuracy(report.as_deref()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn operations(cli: &Operations) -> Result<()> {
    let start = Instant::now();
    let prefix = Prefix::patched()?;
    let driver = Driver::of_operations(&prefix, &[])?;
    let (tier, tier_name) = match cli.tier {
        TierName::Core => (Tier::Core, "core"),
        TierName::Full => (Tier::Full, "full"),
    };
    let (family, title, rule) = match cli.family {
        Family::Attention => (
            "attention",
            "Each row of a block of attention has the bits that it has alone",
            "`attention_full` in `crates/proofs/src/operations/matrix.rs` states the rule: own numbers of keys \
             around each threshold, all other dimensions pairwise.",
        ),
        Family::Dense => (
            "dense",
            "Each row of a dense product has the bits that it has alone",
            "`dense_full` in `crates/proofs/src/operations/matrix.rs` states the rule: every K with every N, \
             all other dimensions pairwise.",
        ),
        Family::Rest => (
            "rest",
            "Each row of sorted gathers, gated delta and products that are not transposed has the bits that \
             it has alone",
            "`rest` in `crates/proofs/src/operations/matrix.rs` states which.",
        ),
    };
    let deadline = cli
        .limit
        .map(|seconds| start + Duration::from_secs(seconds));
    let stamp = prefix.stamp();
    let comparison = compare(
        &driver,
        &stamp.final_tree,
        &jobs(cli.family, tier)?,
        cli.processes,
        cli.done.as_deref(),
        deadline,
    )?;
    let [exact, narrow, default] =
        ["exact", "narrow", "default"].map(|kind| comparison.total(kind));
    println!(
        "{} of {} cases; exact: {} outputs, {} differing; narrow: {} outputs, {} differing; default: {} \
         outputs, {} differing; {} findings in {:.0?}",
        comparison.jobs[0],
        comparison.jobs[1],
        exact.outputs,
        exact.differing,
        narrow.outputs,
        narrow.differing,
        default.outputs,
        default.differing,
        comparison.findings.len(),
        start.elapsed()
    );
    for finding in comparison.findings.iter().take(20) {
        eprintln!("{finding}");
    }
    if let Some(path) = &cli.report {
        let command = format!("cargo run -p proofs -- operations {family} --tier {tier_name}");
        let minutes = start.elapsed().as_secs_f64() / 60.0;
        let page = render_operations(title, rule, &comparison, stamp, &command, minutes);
        cli::file::write(path, page)?;
    }
    if !comparison.findings.is_empty() {
        bail!("rows do not keep their bits");
    }
    if default.differing == 0 {
        bail!("nothing differs under default either, so the comparison proves nothing");
    }
    Ok(())
}

fn names(around: u32) -> Result<()> {
    let start = Instant::now();
    let driver = Driver::of_operations(&Prefix::patched()?, &[])?;
    let mut wrong = 0;
    for architecture in architectures() {
        let found = check_names(&driver, architecture, 64, around, u32::MAX)?;
        println!(
            "{architecture}: {} blocks of {} rows in {} dispatches, {} findings, after {:.0?}",
            found.blocks,
            found.rows,
            found.dispatches,
            found.findings.len(),
            start.elapsed()
        );
        for finding in found.findings.iter().take(5) {
            eprintln!("{finding}");
        }
        wrong += found.findings.len();
    }
    if wrong > 0 {
        bail!("{wrong} blocks dispatch other kernels than their rows alone");
    }
    Ok(())
}

fn identity(cli: &Identity) -> Result<()> {
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
            "cargo run -p proofs -- identity --tier {name}{modes_option}{} --report {}",
            if cli.pristine { " --pristine" } else { "" },
            file.display()
        );
        cli::file::write(
            file,
            render(&outcome, prefix.stamp(), cli.pristine, &command),
        )?;
    }
    if !outcome.findings.is_empty() {
        bail!("{} findings", outcome.findings.len());
    }
    Ok(())
}

/// Compiles kernels in advance, on all cores; otherwise each process would compile them one after another.
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

fn cap() -> Result<()> {
    let patched = Driver::build(&Prefix::patched()?)?;
    let pristine = Driver::build(&Prefix::pristine()?)?;
    let [products, other_tiles] = compare_with_pristine(&patched, &pristine)?;
    println!(
        "{products} products of 1 to 16 rows have the bits of pristine MLX, {other_tiles} of them in \
         other tiles"
    );
    Ok(())
}

fn accuracy(report: Option<&Path>) -> Result<()> {
    let prefix = Prefix::patched()?;
    let products: Vec<_> = BITS
        .iter()
        .flat_map(|&bits| Dtype::ALL.iter().map(move |&dtype| (bits, dtype)))
        .collect();
    let found = Accuracy::measure(&Driver::build(&prefix)?, &products)?;
    let mut command = "cargo run -p proofs -- accuracy".to_owned();
    if let Some(file) = report {
        command += &format!(" --report {}", file.display());
    }
    let page = found.render(prefix.stamp(), &command)?;
    match report {
        Some(file) => cli::file::write(file, page)?,
        None => print!("{page}"),
    }
    found.check()
}
