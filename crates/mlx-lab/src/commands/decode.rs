use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use mlx_lab::decode::{self, Guesser, Options, Transformer};
use mlx_overlay::RowPolicy;

use super::{FOUND, Numbers, Outcome};

/// Decode texts one token at a time and in guessed blocks, and compare the tokens
///
/// Without --model, a small random transformer is decoded. With one, a model folder of the Llama or
/// Qwen3 family. Where tokens differ, the operation where the difference starts is named.
///
/// Exit codes: 0 the same under every policy that is asked for, 3 not, 1 an error, 2 wrong usage.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mlx-lab decode                                        a synthetic model under all policies
  mlx-lab decode --policy exact --texts 8 --tokens 400 --widths 2-8
  mlx-lab decode --model ~/models/Qwen3-0.6B-4bit --policy exact --tokens 256
  mlx-lab decode --model ~/models/Qwen3-0.6B-4bit --prompt 9707,11,1879")]
pub(crate) struct Args {
    /// A model folder as mlx_lm writes it
    #[arg(long, value_name = "FOLDER")]
    model: Option<PathBuf>,
    /// Number of the synthetic model
    #[arg(
        long,
        value_name = "SEED",
        default_value_t = 0,
        conflicts_with = "model"
    )]
    seed: u64,
    /// Only this policy; the exit code then answers for it. May be repeated
    #[arg(long, value_name = "NAME")]
    policy: Vec<RowPolicy>,
    /// Rows of the blocks, 2 to 8
    #[arg(long, value_name = "LIST", default_value = "4")]
    widths: Numbers,
    /// Texts, each from a random prompt of 8 tokens
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 4,
        conflicts_with = "prompt",
        value_parser = clap::value_parser!(u64).range(1..=10_000)
    )]
    texts: u64,
    /// Begin with these tokens instead
    #[arg(long, value_name = "LIST")]
    prompt: Option<Numbers>,
    /// Tokens of each text
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,
    /// Sample with noise of this temperature; the same noise at the same position of every run
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = temperature)]
    temperature: f32,
    /// Guess with the first so many layers; 0: what followed the same tokens before [default: 1 for
    /// the synthetic model, 0 for a folder]
    #[arg(long, value_name = "LAYERS")]
    guess: Option<usize>,
    /// Write all that was compared to a file, as JSON; - for standard output, without the summary
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn temperature(text: &str) -> Result<f32> {
    let temperature: f32 = text.parse()?;
    ensure!(
        temperature.is_finite() && temperature >= 0.0,
        "a temperature is a number from 0 on; found {temperature}"
    );
    Ok(temperature)
}

pub(crate) fn run(args: Args) -> Outcome {
    super::check_json(args.json.as_deref())?;
    let model = model(args.model.as_ref(), args.seed)?;
    let prompts = match &args.prompt {
        None => Options::random_prompts(args.texts, 8, model.shape().vocabulary),
        Some(tokens) => {
            let known = |&&token: &&usize| token >= model.shape().vocabulary;
            ensure!(
                tokens.0.iter().find(known).is_none(),
                "--prompt: tokens must be below {}, the vocabulary",
                model.shape().vocabulary
            );
            vec![tokens.0.iter().map(|&token| token as u32).collect()]
        }
    };
    let layers = args.guess.unwrap_or(usize::from(args.model.is_none()));
    let options = Options {
        policies: if args.policy.is_empty() {
            mlx_lab::setting::policies()
        } else {
            args.policy.clone()
        },
        widths: args.widths.0.clone(),
        prompts,
        tokens: args.tokens as usize,
        temperature: args.temperature,
        guesser: match layers {
            0 => Guesser::Lookup,
            layers => Guesser::FirstLayers(layers),
        },
    };
    let report = {
        let progress = cli::Progress::counted("decode");
        decode::run(&model, &options, &mut |done, total| {
            progress.count(done, total)
        })?
    };
    super::print(&report, args.json.as_deref(), decode::render)?;
    let same = report.same().len() == options.policies.len();
    Ok(if same {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FOUND)
    })
}

/// A folder, or the synthetic model of a number.
pub(crate) fn model(folder: Option<&PathBuf>, seed: u64) -> Result<Transformer> {
    match folder {
        Some(folder) => Transformer::read(folder)
            .with_context(|| format!("cannot read the model {}", folder.display())),
        None => Ok(decode::synthetic(seed)?),
    }
}
