use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use cli::println;
use mlx_lab::bench::{self, ALTERNATIVE, Arm, Cell, Local, Options, Report, Worker};
use mlx_lab::calibrate::{self, Calibration, Costs, best_depth};
use mlx_lab::machine::Machine;
use mlx_lab::model::Model;
use mlx_lab::probe::Layer;
use mlx_lab::product::Product;
use mlx_overlay::RowPolicy;

use super::{Numbers, Outcome};

/// Measure which kernel is fastest for which shape, and write the result to a file for the dispatch
///
/// Every kernel is tried, the streamed ones in both of their arrangements. A kernel is preferred if it saves at least
/// the margin and its results are right. The file is valid for this machine and this build of MLX, and each entry for
/// the measured format; mlx_lab::calibrate::Calibration installs it. With a model, the command also prints how far
/// ahead to guess.
///
/// On a simulated device the file has no preferences, because a simulator's times mean nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mlx-lab calibrate --out qmv.toml --exact
  mlx-lab calibrate --out qmv.toml --model ~/models/Qwen3-8B-4bit --context 4096 --guess-ms 1.5 --acceptance 0.7
  mlx-lab calibrate --out qmv.toml --from bench/bench.json      use earlier measurements")]
pub(crate) struct Args {
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Consider only kernels with the bits of one row
    #[arg(long)]
    exact: bool,
    /// The part of the time that a kernel must save to be preferred, from 0 to below 1
    #[arg(long, value_name = "PART", default_value_t = 0.05, value_parser = margin)]
    margin: f64,
    /// Use the times in this report of `bench` instead of measuring
    #[arg(long, value_name = "FILE", conflicts_with_all = ["product", "model", "rows"])]
    from: Option<PathBuf>,
    /// A product, as in `bench` [default: the usual shapes]. May be repeated
    #[arg(long, value_name = "SHAPE", conflicts_with = "model")]
    product: Vec<Product>,
    /// Measure the products of this model folder
    #[arg(long, value_name = "FOLDER")]
    model: Option<PathBuf>,
    /// Rows
    #[arg(long, value_name = "LIST", default_value = "1-12")]
    rows: Numbers,
    /// Number of positions in the context, for the depth
    #[arg(long, value_name = "COUNT", default_value_t = 512, requires = "model",
        value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    context: u32,
    /// Milliseconds per guess, for the depth
    #[arg(long, value_name = "MS", default_value_t = 0.0, requires = "model", value_parser = guess)]
    guess_ms: f64,
    /// The probability that a guess is right, from 0 to 1, for the depth
    #[arg(long, value_name = "CHANCE", requires = "model", value_parser = chance)]
    acceptance: Option<f64>,
}

fn margin(text: &str) -> Result<f64> {
    Ok(calibrate::margin(text.parse()?)?)
}

fn guess(text: &str) -> Result<f64> {
    let milliseconds: f64 = text.parse()?;
    ensure!(
        milliseconds.is_finite() && milliseconds >= 0.0,
        "the time of a guess must not be negative; found {milliseconds}"
    );
    Ok(milliseconds)
}

fn chance(text: &str) -> Result<f64> {
    let chance: f64 = text.parse()?;
    ensure!(
        (0.0..=1.0).contains(&chance),
        "a probability must be from 0 to 1; found {chance}"
    );
    Ok(chance)
}

pub(crate) fn run(args: Args) -> Outcome {
    cli::file::check_writable(&args.out)?;
    let model = args.model.as_deref().map(Model::read).transpose()?;
    if let (Some(model), Some(_)) = (&model, args.acceptance) {
        ensure!(
            model.skipped.is_empty(),
            "--acceptance needs the times of the whole model, but these were not measured: {}",
            model.skipped.join("; ")
        );
    }
    let report = match &args.from {
        Some(file) => read(file)?,
        None => measure(&args, model.as_ref())?,
    };
    let machine = report
        .machines
        .first()
        .context("the report has no machine")?
        .clone();
    ensure!(
        machine.architecture == Machine::here()?.architecture && !machine.pristine,
        "the times are from {}, but this is another device: measure again here",
        machine.line()
    );
    let outputs = if machine.simulated { 16 } else { 256 };
    let mut sound = |product: &Product, rows, path| calibrate::sound(product, rows, path, outputs);
    let calibration = Calibration::of(
        machine.clone(),
        &report.cells,
        args.exact,
        args.margin,
        &mut sound,
    )?;
    cli::file::write(&args.out, &calibration.to_toml()?)?;
    println!("{}", machine.line());
    if let Some(caveat) = machine.caveat() {
        println!("{caveat}");
    }
    println!(
        "{} preferences in {}, {} rejected",
        calibration.preferences.len(),
        args.out.display(),
        calibration.rejected.len()
    );
    // Products without another arrangement.
    for line in report.refused.iter().filter(|l| l.contains(ALTERNATIVE)) {
        println!("{line}");
    }
    for line in bench::wide_lines(&report.wide) {
        println!("{line}");
    }
    if let (Some(model), Some(acceptance)) = (&model, args.acceptance) {
        depth(&args, model, acceptance, &report, machine.simulated)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> Result<Report> {
    let text = fs_err::read_to_string(file)?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not a report of `mlx-lab bench`", file.display()))
}

fn measure(args: &Args, model: Option<&Model>) -> Result<Report> {
    let simulated = Machine::here()?.simulated;
    let products = match model {
        Some(model) => model.layers.iter().map(|l| l.product.clone()).collect(),
        None if args.product.is_empty() => {
            mlx_lab::shapes(&[mlx_overlay::Quantization::affine(4, 64)?])?
        }
        None => args.product.clone(),
    };
    let options = Options {
        products,
        blocks: args.rows.0.iter().map(|&rows| (1, rows)).collect(),
        arms: Arm::all(),
        dense: false,
        rounds: if simulated { 1 } else { 6 },
        chain: if simulated { 0.0 } else { 0.02 },
        rotated: if simulated { 1 } else { 256 << 20 },
        sustained: 0.0,
        outputs: simulated.then_some(16),
    };
    let mut workers: Vec<Box<dyn Worker>> = vec![Box::new(Local::default())];
    let progress = cli::Progress::counted("calibrate");
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let mut show = |done, total| progress.count(done, total);
    Ok(bench::run(&options, &mut workers, command, &mut show)?)
}

/// Prints how far ahead to guess under `exact` and under `wide`.
fn depth(
    args: &Args,
    model: &Model,
    acceptance: f64,
    report: &Report,
    simulated: bool,
) -> Result<()> {
    if simulated {
        println!("depth: none, because a simulator's times mean nothing");
        return Ok(());
    }
    ensure!(
        !model.attention.is_empty(),
        "config.json does not describe attention, which is part of the cost"
    );
    let mut attention = Vec::new();
    for rows in 1..=args.rows.0.iter().copied().max().unwrap_or(1) {
        let mut seconds = 0.0;
        for &shape in &model.attention {
            let positions = args.context as usize;
            let context = shape
                .window
                .map_or(positions, |window| window.min(positions));
            let one = calibrate::attention_seconds(shape, rows, context, 10)?;
            seconds += one * shape.layers as f64;
        }
        attention.push(seconds);
    }
    for policy in [RowPolicy::EXACT, RowPolicy::WIDE] {
        let costs = Costs {
            verify: passes(&report.cells, &model.layers, &attention, policy),
            guess: args.guess_ms * 1e-3,
            acceptance,
        };
        let depth = best_depth(&costs)?;
        for (rows, seconds) in (1..).zip(&costs.verify) {
            println!(
                "under {policy}, a pass over {rows} rows: {:.3} ms",
                seconds * 1e3
            );
        }
        println!(
            "depth under {policy}: {} guesses, {:.2} tokens per cycle, {:.1} tokens per second, {:.2} times as many as \
             without (products and attention at {} positions; without norms and the host)",
            depth.guesses, depth.tokens, depth.tokens_per_s, depth.speedup, args.context
        );
    }
    Ok(())
}

/// Seconds of a pass over 1, 2 and so on rows, as far as measured, given the seconds of its attention.
fn passes(cells: &[Cell], layers: &[Layer], attention: &[f64], policy: RowPolicy) -> Vec<f64> {
    let products = |rows| -> Option<f64> {
        let of = |layer: &Layer| {
            let one = seconds(cells, layer, rows, policy)?;
            Some(one * layer.count as f64)
        };
        layers.iter().map(of).sum()
    };
    (1..)
        .zip(attention)
        .map_while(|(rows, attention)| Some(products(rows)? + attention))
        .collect()
}

/// Seconds of one product under a policy.
fn seconds(cells: &[Cell], layer: &Layer, rows: usize, policy: RowPolicy) -> Option<f64> {
    let shape = layer.product.shape();
    let cell = cells.iter().find(|cell| {
        (cell.batch, cell.rows) == (1, rows)
            && cell.product.shape() == shape
            && cell.is_of(&policy.to_string())
    });
    cell.map(|cell| cell.seconds.median)
}

#[cfg(test)]
mod tests {
    use mlx_lab::bench::Spread;

    use super::*;

    #[test]
    fn a_pass_takes_the_times_of_its_policy() {
        let product: Product = "64x512:4:64".parse().unwrap();
        let cell = |rows, arm: &str, also: &[&str], seconds: f64| Cell {
            bytes: product.bytes(2),
            product: product.clone(),
            batch: 1,
            rows,
            arm: arm.to_owned(),
            also: also.iter().map(|&arm| arm.to_owned()).collect(),
            kernel: String::new(),
            length: 8,
            copies: 8,
            seconds: Spread::of(&[seconds], 1).unwrap(),
            gb_per_s: None,
        };
        let cells = [
            cell(1, "default", &["narrow", "exact"], 1.0),
            cell(1, "wide", &[], 2.0),
            cell(2, "default", &["wide"], 3.0),
            cell(2, "exact", &[], 4.0),
            cell(3, "wide", &[], 5.0),
        ];
        let layers = [Layer { product, count: 10 }];
        let of = |policy| passes(&cells, &layers, &[0.5, 0.75, 1.0, 1.0], policy);
        assert_eq!(of(RowPolicy::EXACT), [10.5, 40.75]);
        assert_eq!(of(RowPolicy::WIDE), [20.5, 30.75, 51.0]);
    }
}
