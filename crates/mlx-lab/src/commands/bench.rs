use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use cli::print;
use mlx_lab::bench::{self, Arm, Local, Options, Remote, Report, Worker};
use mlx_lab::machine::Machine;
use mlx_lab::product::{Product, parse_format};
use mlx_overlay::{Quantization, RowPolicy};

use super::{Numbers, Outcome};

/// Measure chains of dependent products, kernel by kernel
///
/// Writes bench.json, bench.md and a plot for each product to a folder, and prints their paths. On a simulated device
/// only 16 outputs of each product are computed, and the times are those of the simulator; the report says so, and
/// derives nothing from them.
///
/// Exit codes: 0 measured, 1 an error (for example if both arms would take the same kernel), 2 wrong usage.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mlx-lab bench --out bench                     the default shapes at 4 and 8 bits
  mlx-lab bench --quick --out bench             one width, four numbers of rows
  mlx-lab bench --product 17408x5120:4:64 --rows 2-8 --out bench
  mlx-lab bench --against target/pristine/release/mlx-lab --out bench
                                                compare with another build; docs/guide/measure.md")]
pub(crate) struct Args {
    /// Folder for the report; created if it does not exist
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// A product: [NAME=]OUTPUTSxVALUES[:BITS[:GROUP]], or :mxfp4, :mxfp8, :nvfp4. May be repeated
    #[arg(long, value_name = "SHAPE", conflicts_with = "formats")]
    product: Vec<Product>,
    /// Formats of the default shapes: BITS:GROUP, mxfp4, mxfp8, nvfp4 [default: 4:64,8:64; 4:64 with --quick]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_format)]
    formats: Vec<Quantization>,
    /// Rows [default: 1-16; 1,2,4,8 with --quick]
    #[arg(long, value_name = "LIST")]
    rows: Option<Numbers>,
    /// Batches, each measured with blocks of 1 and of 4 rows [default: 2,4,8; none with --quick]
    #[arg(long, value_name = "LIST")]
    batches: Option<Numbers>,
    /// Policies to compare, or exact-alt, the other arrangement of the streamed kernels. May be repeated
    ///
    /// [default: default, narrow, wide, exact, exact-alt]
    #[arg(long, value_name = "NAME", conflicts_with = "against")]
    policy: Vec<Arm>,
    /// Compare with another build: a mlx-lab that was linked to it
    #[arg(long, value_name = "PROGRAM")]
    against: Option<PathBuf>,
    /// Rounds of B A A B [default: 8; 3 with --quick]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Repeat one chain for this many seconds at the end [default: 120; 0 with --quick or simulated]
    #[arg(long, value_name = "SECONDS")]
    sustained: Option<u32>,
    /// The device's bandwidth, for the plots [default:  the fastest read of each product]
    #[arg(long, value_name = "GB/S", value_parser = bandwidth)]
    bandwidth: Option<f64>,
    /// Fewer shapes, rows and rounds
    #[arg(long)]
    quick: bool,
    /// Skip the control with dense weights
    #[arg(long)]
    no_dense: bool,
}

fn bandwidth(text: &str) -> Result<f64> {
    let rate: f64 = text.parse()?;
    ensure!(
        rate.is_finite() && rate > 0.0,
        "the bandwidth must be greater than 0; found {rate}"
    );
    Ok(rate)
}

pub(crate) fn run(args: Args) -> Outcome {
    fs_err::create_dir_all(&args.out)?;
    for name in ["bench.json", "bench.md"] {
        cli::file::check_writable(&args.out.join(name))?;
    }
    let simulated = Machine::here()?.simulated;
    let options = options(&args, simulated)?;
    let mut workers: Vec<Box<dyn Worker>> = match &args.against {
        None => vec![Box::new(Local::default())],
        Some(other) => {
            let this = std::env::current_exe().context("cannot find this program's own path")?;
            vec![
                Box::new(Remote::start(&this)?),
                Box::new(Remote::start(other)?),
            ]
        }
    };
    if args.against.is_some() && workers[0].machine()?.tree == workers[1].machine()?.tree {
        bail!("both programs are linked to the same tree of MLX, so there is nothing to compare");
    }
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let report = {
        let progress = cli::Progress::counted("bench");
        let mut show = |done, total| progress.count(done, total);
        bench::run(&options, &mut workers, command, &mut show)?
    };
    match write(&args.out, &report, args.bandwidth) {
        Ok(plots) => print!(
            "{}tables: {}\neverything: {}\nplots: {}\n",
            bench::summary(&report),
            args.out.join("bench.md").display(),
            args.out.join("bench.json").display(),
            plots.join(", ")
        ),
        // The measurement may have taken an hour, so print something even if writing failed.
        Err(error) => {
            print!("{}", bench::markdown(&report));
            return Err(error);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures for another process.
pub(crate) fn serve() -> Outcome {
    bench::serve(std::io::stdin().lock(), std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}

fn options(args: &Args, simulated: bool) -> Result<Options> {
    let quick = args.quick;
    let affine = |bits| Quantization::affine(bits, 64);
    let formats = match (args.formats.as_slice(), quick) {
        ([], true) => vec![affine(4)?],
        ([], false) => vec![affine(4)?, affine(8)?],
        (formats, _) => formats.to_vec(),
    };
    let mut products = args.product.clone();
    if products.is_empty() {
        products = mlx_lab::shapes(&formats)?;
        // Group sizes, for the shape in which the weights dominate.
        if !quick && args.formats.is_empty() {
            for group in [32, 128] {
                let quantization = Quantization::affine(4, group)?;
                products.push(Product::new(17_408, 5_120, quantization)?.named("mlp"));
            }
        }
    }
    let list = |given: &Option<Numbers>, full: Vec<usize>, few: Vec<usize>| match given {
        Some(given) => given.0.clone(),
        None if quick => few,
        None => full,
    };
    let rows = list(&args.rows, (1..=16).collect(), vec![1, 2, 4, 8]);
    let batches = list(&args.batches, vec![2, 4, 8], Vec::new());
    let mut blocks: Vec<(usize, usize)> = rows.into_iter().map(|rows| (1, rows)).collect();
    blocks.extend(
        batches
            .into_iter()
            .flat_map(|batch| [(batch, 1), (batch, 4)]),
    );
    let arms = if args.against.is_some() {
        let arm = |label: &str, worker| Arm {
            label: label.to_owned(),
            worker,
            setting: RowPolicy::DEFAULT.to_string(),
        };
        vec![arm("this build", 0), arm("other build", 1)]
    } else if args.policy.is_empty() {
        Arm::all()
    } else {
        args.policy.clone()
    };
    let sustained = args
        .sustained
        .unwrap_or(if quick || simulated { 0 } else { 120 });
    Ok(Options {
        products,
        blocks,
        arms,
        dense: !args.no_dense && args.against.is_none(),
        rounds: args.rounds.map_or(if quick { 3 } else { 8 }, usize::from),
        // A simulated chain of two products takes longer than a real one of a hundred.
        chain: if simulated { 0.0 } else { 0.02 },
        rotated: if simulated { 1 } else { 256 << 20 },
        sustained: f64::from(sustained),
        outputs: simulated.then_some(16),
    })
}

/// Writes the files and returns the paths of the plots.
fn write(folder: &Path, report: &Report, bandwidth: Option<f64>) -> Result<Vec<String>> {
    let json = serde_json::to_string_pretty(report).context("JSON")?;
    cli::file::write(&folder.join("bench.json"), format!("{json}\n"))?;
    cli::file::write(&folder.join("bench.md"), bench::markdown(report))?;
    let mut plots = Vec::new();
    for (name, svg) in bench::plots(report, bandwidth) {
        let path = folder.join(format!("{name}.svg"));
        cli::file::write(&path, &svg)?;
        plots.push(path.display().to_string());
    }
    Ok(plots)
}
