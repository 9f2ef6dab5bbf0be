use std::path::PathBuf;
use std::process::ExitCode;

use mlx_lab::mixed::{self, Options, Products};
use mlx_lab::model::Model;
use mlx_overlay::RowPolicy;

use super::{FOUND, Outcome};

/// Run a batch under the default policy alongside verify passes under an exact one
///
/// A pass is the chain of a model's quantized products, with random weights. The batch takes its steps first alone, and
/// then alternating with the verify passes. Its kernels and the bits of its rows must be the same in both cases; on a
/// real device its times are compared too.
///
/// Exit codes: 0 the same, 3 different, 1 an error, 2 wrong usage.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mlx-lab mixed
  mlx-lab mixed --model ~/models/Qwen3-8B-4bit --batch 8 --width 4 --steps 200")]
pub(crate) struct Args {
    /// A model folder as mlx_lm writes it (only headers are read) [default: a few small products]
    #[arg(long, value_name = "FOLDER")]
    model: Option<PathBuf>,
    /// Rows of the batch, one per sequence
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch: u32,
    /// Rows of each verify pass, 2 to 8
    #[arg(long, value_name = "ROWS", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=8))]
    width: u32,
    /// The policy of the verify passes
    #[arg(long, value_name = "NAME", default_value_t = RowPolicy::EXACT)]
    policy: RowPolicy,
    /// Steps of the batch
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// Write all counts to a file, as JSON; - for standard output, without the summary
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Outcome {
    super::check_json(args.json.as_deref())?;
    let products = match &args.model {
        Some(folder) => Products::of(&Model::read(folder)?)?,
        None => Products::small()?,
    };
    let options = Options {
        batch: args.batch as usize,
        width: args.width as usize,
        policy: args.policy,
        steps: args.steps as usize,
    };
    let report = {
        let progress = cli::Progress::counted("mixed");
        mixed::run(&products, &options, &mut |done, total| {
            progress.count(done, total)
        })?
    };
    super::print(&report, args.json.as_deref(), mixed::render)?;
    Ok(if report.is_free() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FOUND)
    })
}
