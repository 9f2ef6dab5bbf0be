//! Runs Apple-compiled kernels on the host and compares them with the simulator's own compilation of the same source.
//!
//! The official metallib contains the intermediate code (AIR) of every stock kernel: the output of Apple's front end
//! for the same Metal source that the simulator compiles. Lowered by a stock LLVM and run on the simulator's lanes, it
//! is an oracle that is independent of this project's compiler. It cannot show what Apple's GPU back end does later.

mod air;
mod case;
mod lower;
mod problem;
mod report;
mod runner;
mod simulator;

use std::collections::{BTreeSet, HashMap};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use clap::Parser;
use cli::println;
use fs_err as fs;
use metal_sim::Contraction;
use metallib::{Function, Library};
use rayon::prelude::*;

use air::Kernel;
use case::Case;
use lower::Llvm;
use problem::Problem;
use report::{Outcome, Report, Run, Runs};
use runner::Reduction;
use simulator::Simulator;

#[derive(Parser)]
#[command(about, long_about = None)]
struct Args {
    /// The official metallib, from the PyPI wheel `mlx-metal` of the tree's version
    #[arg(long)]
    metallib: Utf8PathBuf,
    /// A pristine MLX tree; without it, the kernels are only compared with double precision
    #[arg(long)]
    tree: Option<Utf8PathBuf>,
    /// Only kernels whose name contains this text
    #[arg(long, default_value = "")]
    filter: String,
    /// Seeds of random inputs, for each kernel and reading
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Write the summary here, as Markdown
    #[arg(long)]
    report: Option<Utf8PathBuf>,
    /// Keep modules and shared objects here
    #[arg(long)]
    keep: Option<Utf8PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether everything agreed.
fn run(args: &Args) -> Result<bool> {
    let map =
        metallib::map_file(&args.metallib).with_context(|| format!("opening {}", args.metallib))?;
    let library = Library::parse(&map).with_context(|| format!("reading {}", args.metallib))?;
    let temporary = tempfile::Builder::new()
        .prefix("mlx-overlay-oracle-")
        .tempdir()?;
    let folder = match &args.keep {
        Some(folder) => folder.as_path(),
        None => Utf8Path::from_path(temporary.path())
            .context("the temporary folder's name is not UTF-8")?,
    };
    fs::create_dir_all(folder)?;
    let simulator = args
        .tree
        .as_deref()
        .map(|tree| Simulator::new(tree, folder))
        .transpose()?;
    let functions: metallib::Result<HashMap<_, _>> = library
        .functions()
        .map(|function| function.map(|function| (function.name, function)))
        .collect();
    let builder = Builder {
        functions: functions?,
        llvm: Llvm::find()?,
        simulator,
        folder,
    };
    let cases: Vec<Case> = case::all()
        .into_iter()
        .filter(|case| case.kernel().contains(&args.filter))
        .collect();
    let builds = builder.build(&cases)?;
    let mut report = Report::new(provenance(&library, &builder.llvm, args.seeds)?);
    for case in &cases {
        for seed in 0..args.seeds {
            let problem = Problem::new(case, seed);
            let runs = builds.run(case, &problem).with_context(|| case.kernel())?;
            let outcome = Outcome::new(case, &problem, &runs);
            for complaint in outcome.complaints() {
                println!("{}, seed {seed}: {complaint}", case.kernel());
            }
            report.add(outcome);
        }
    }
    let summary = report.to_markdown();
    println!("{summary}");
    if let Some(path) = &args.report {
        cli::file::write(path.as_std_path(), summary)?;
    }
    Ok(report.agrees())
}

/// The first line of the report: file and tools.
fn provenance(library: &Library<'_>, llvm: &Llvm, seeds: u64) -> Result<String> {
    let header = library.header();
    let uuid = library.uuid()?.unwrap_or_default();
    let uuid: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!(
        "Metallib {uuid} ({} functions, minimum system {} {}), LLVM {}, {seeds} seeds, two orders of `simd_sum`.",
        library.len(),
        header.os,
        header.os_version,
        llvm.version
    ))
}

/// Both compilations of one kernel, as shared objects.
struct Build {
    apple: Utf8PathBuf,
    simulated: Option<Utf8PathBuf>,
}

/// Compiles kernels.
struct Builder<'a> {
    functions: HashMap<&'a str, Function<'a>>,
    llvm: Llvm,
    simulator: Option<Simulator>,
    folder: &'a Utf8Path,
}

impl Builder<'_> {
    /// Compiles every kernel of `cases` in both readings, on all cores.
    fn build(&self, cases: &[Case]) -> Result<Builds> {
        let kernels: BTreeSet<String> = cases.iter().map(Case::kernel).collect();
        let wanted: Vec<_> = kernels
            .into_iter()
            .flat_map(|name| Contraction::NAMES.map(|(_, contraction)| (name.clone(), contraction)))
            .collect();
        let done = AtomicUsize::new(0);
        let builds: Result<HashMap<_, _>> = wanted
            .par_iter()
            .map(|(name, contraction)| {
                let apple = self
                    .apple(name, *contraction)
                    .with_context(|| name.clone())?;
                let simulated = match &self.simulator {
                    Some(simulator) => Some(simulator.kernel(name, *contraction)?),
                    None => None,
                };
                let number = done.fetch_add(1, Ordering::Relaxed) + 1;
                eprintln!("{number}/{} {name}", wanted.len());
                Ok(((name.clone(), *contraction), Build { apple, simulated }))
            })
            .collect();
        Ok(Builds(builds?))
    }

    fn apple(&self, name: &str, contraction: Contraction) -> Result<Utf8PathBuf> {
        let file = self
            .folder
            .join(format!("{name}-{}.bc", air::reading(contraction)));
        fs::write(&file, self.bitcode(name)?)?;
        let text = self.llvm.disassemble(&file)?;
        let kernel = Kernel::from_disassembly(name, &text, contraction)?;
        self.llvm.lower(
            &kernel,
            contraction,
            Utf8Path::new(env!("CARGO_MANIFEST_DIR")),
            self.folder,
        )
    }

    fn bitcode(&self, name: &str) -> Result<&[u8]> {
        let function = self
            .functions
            .get(name)
            .context("not in the metallib; does its version match the tree's?")?;
        let bitcode = function.bitcode.context("the function has no bitcode")?;
        if function.sha256 != Some(&bitcode.sha256()) {
            bail!("the bitcode does not match the stored SHA-256");
        }
        Ok(bitcode.bytes)
    }
}

/// The compiled kernels, by name and reading.
struct Builds(HashMap<(String, Contraction), Build>);

impl Builds {
    /// Runs `case` in both compilations, both readings, both orders of `simd_sum`.
    fn run(&self, case: &Case, problem: &Problem) -> Result<Runs> {
        let reading = |contraction| -> Result<[Run; 2]> {
            let build = self
                .0
                .get(&(case.kernel(), contraction))
                .context("it was not built")?;
            let run = |order| -> Result<Run> {
                let apple = runner::run(&build.apple, case, problem, order)?;
                let simulated = match &build.simulated {
                    Some(object) => Some(runner::run(object, case, problem, order)?),
                    None => None,
                };
                Ok(Run { apple, simulated })
            };
            Ok([run(Reduction::Butterfly)?, run(Reduction::Neighbours)?])
        };
        Ok([reading(Contraction::Fused)?, reading(Contraction::Split)?])
    }
}
