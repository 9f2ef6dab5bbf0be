//! Answers a question three times: token by token, then in blocks of guesses under `exact` and under `default`.
//! Compares the tokens and the bits of their logits. README.md walks through it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use cli::{print, println};
use decoder::gguf::Gguf;
use decoder::model::{Cache, Model, Weights};
use decoder::text::Text;
use decoder::{folder, lookup};
use mlx_overlay::{
    Backend, Device, RowPolicy, Stream, argmax, build_info, eval, f16, has_policies,
};

/// The question of README.md.
const QUESTION: &str = "What is the largest planet in the solar system?";

/// Decode a small model with guesses, and compare the result with plain decoding bit for bit
#[derive(Debug, Parser)]
#[command(after_long_help = "\
Example:
  cargo run -p decoder -- \"$(examples/decoder/fetch.sh)\" 'What is the moon made of?'

The exit code is 3 if the blocks under `exact` differ from plain decoding.")]
struct Args {
    /// A GGUF file with a Llama model of Q4_1 and Q8_0 weights.
    model: PathBuf,
    /// The question.
    #[arg(default_value = QUESTION)]
    question: String,
    /// The system prompt.
    #[arg(
        long,
        default_value = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    )]
    system: String,
    /// Continue the question as it is, without the chat template.
    #[arg(long)]
    raw: bool,
    /// The most tokens of an answer.
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    tokens: u32,
    /// The most rows of a block: a certain token, and guesses.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=16))]
    width: u32,
    /// Only answer token by token, and compare nothing.
    #[arg(long)]
    plain: bool,
    /// Also print the token ids of the prompt and of the answer.
    #[arg(long)]
    ids: bool,
    /// Write the model as a folder for mlx-lm and `mlx-lab probe`, and do not decode.
    #[arg(long, value_name = "FOLDER")]
    write_folder: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<ExitCode> {
    let file = Gguf::read(&args.model)?;
    let weights = Weights::read(&file)?;
    let text = Text::read(&file)?;
    if let Some(to) = &args.write_folder {
        folder::write(to, &weights, &text)?;
        println!(
            "{} has the model in the form that mlx-lm reads",
            to.display()
        );
        return Ok(ExitCode::SUCCESS);
    }

    let prompt = match args.raw {
        true => text.tokens(&args.question)?,
        false => text.question(&args.system, &args.question)?,
    };
    ensure!(
        !prompt.is_empty(),
        "there is nothing to answer: the question is empty"
    );
    let info = build_info()?;
    let simulated = match info.backend {
        Backend::Sim => " (simulated: a token takes about a second)",
        _ => "",
    };
    println!(
        "MLX {}, {} back-end{simulated}",
        info.mlx_version, info.backend
    );
    println!("reading a prompt of {} tokens\n", prompt.len());
    if args.ids {
        println!("prompt: {prompt:?}\n");
    }

    let model = Model::new(&weights)?;
    // Decoding token by token needs no policies, so it works with any build.
    let exact = match args.plain {
        true => None,
        false => Some(Stream::with_policy(RowPolicy::EXACT)?),
    };
    let default = match has_policies() && info.metal_available {
        true => Stream::with_policy(RowPolicy::DEFAULT)?,
        false => Stream::new(Device::preferred()?)?,
    };
    let tokens = args.tokens as usize;

    // All of the prompt except its last token, once: every run starts with the same bits.
    let mut cache = Cache::new(&model.config, prompt.len() + tokens)?;
    let (&last, before) = prompt.split_last().context("a prompt")?;
    if !before.is_empty() {
        default.scope(|| -> Result<()> {
            model.forward(before, &mut cache)?;
            cache.evaluate()
        })?;
    }
    let run = |stream: &Stream, width: usize| {
        let session = Session {
            model: &model,
            stream,
            check: exact.as_ref().map(Stream::index) == Some(stream.index()),
            cache: cache.clone(),
            said: prompt.clone(),
            next: last,
        };
        session.decode(tokens, width, &text)
    };

    println!("token by token, default:");
    let plain = run(&default, 1)?;
    println!(
        "  {} tokens in {} passes\n",
        plain.tokens.len(),
        plain.passes
    );
    if args.ids {
        println!("answer: {:?}\n", plain.tokens);
    }
    let mut code = ExitCode::SUCCESS;
    let Some(exact) = &exact else {
        return Ok(code);
    };
    for (policy, stream) in [(RowPolicy::EXACT, exact), (RowPolicy::DEFAULT, &default)] {
        println!(
            "guesses by look-up, blocks of up to {} tokens, {policy}:",
            args.width
        );
        let blocks = run(stream, args.width as usize)?;
        println!(
            "  {} tokens in {} passes, {:.2} a pass; {} of {} guesses were right",
            blocks.tokens.len(),
            blocks.passes,
            blocks.tokens.len() as f64 / blocks.passes as f64,
            blocks.right,
            blocks.guesses,
        );
        let same = report(&plain, &blocks, prompt.len(), &text)?;
        if policy == RowPolicy::EXACT && !same {
            code = ExitCode::from(3);
        }
    }
    Ok(code)
}

/// A conversation with the model.
struct Session<'a> {
    model: &'a Model,
    stream: &'a Stream,
    /// Whether rows of a block must have the same bits as alone.
    check: bool,
    /// What the model has seen: `said` without `next`.
    cache: Cache,
    said: Vec<u32>,
    /// The last certain token.
    next: u32,
}

/// The result of one run.
#[derive(Default)]
struct Run {
    tokens: Vec<u32>,
    /// The logits that each token was chosen from.
    logits: Vec<Vec<f16>>,
    passes: usize,
    guesses: usize,
    right: usize,
}

impl Session<'_> {
    /// Generates at most `tokens` tokens, up to the end of the answer, in blocks of up to `width` rows.
    fn decode(mut self, tokens: usize, width: usize, text: &Text) -> Result<Run> {
        let mut run = Run::default();
        let mut shown = 0;
        while run.tokens.len() < tokens && run.tokens.last() != Some(&text.end()) {
            // A block: the certain token, and guesses of what follows it.
            let room = (tokens - run.tokens.len()).min(width) - 1;
            let guesses = lookup::guess(&self.said, room);
            let mut block = vec![self.next];
            block.extend(&guesses);
            let begin = self.cache.length();
            let (choices, logits) = self.pass(&block)?;

            // A guess is right if it is what the model chooses after the tokens before it.
            let pairs = guesses.iter().zip(&choices);
            let mut right = pairs.take_while(|(guess, choice)| guess == choice).count();
            if let Some(end) = choices[..right]
                .iter()
                .position(|&token| token == text.end())
            {
                right = end;
            }
            let certain = &choices[..=right];
            self.cache.truncate(begin + certain.len());
            self.said.extend(certain);
            self.next = choices[right];

            run.passes += 1;
            run.guesses += guesses.len();
            run.right += right;
            run.tokens.extend(certain);
            run.logits.extend(logits.into_iter().take(certain.len()));
            shown = show(text, &run.tokens, shown)?;
        }
        println!();
        Ok(run)
    }

    /// The model's choice after each token of a block, and the logits.
    fn pass(&mut self, block: &[u32]) -> Result<(Vec<u32>, Vec<Vec<f16>>)> {
        let (model, cache) = (self.model, &mut self.cache);
        let (choices, logits) = self.stream.scope(|| -> Result<_> {
            let logits = model.logits(&model.forward(block, cache)?)?;
            Ok((argmax(&logits)?, logits))
        })?;
        if self.check {
            // Nothing has run yet; this reports operations that would not keep their bits.
            self.stream.check_operations([&choices, &logits])?;
        }
        eval([&choices, &logits])?;
        let logits = logits.to_vec::<f16>()?;
        ensure!(
            logits.iter().all(|logit| logit.is_finite()),
            "a logit is not finite: float16 is too narrow for this model, or the file is damaged"
        );
        let rows = logits.chunks_exact(model.config.vocabulary);
        Ok((choices.to_vec()?, rows.map(<[f16]>::to_vec).collect()))
    }
}

/// Prints the new part of the text. The bytes of an incomplete character are held back.
fn show(text: &Text, tokens: &[u32], shown: usize) -> Result<usize> {
    let whole = text.of(tokens)?;
    let whole = whole.trim_end_matches(char::REPLACEMENT_CHARACTER);
    print!("{}", whole.get(shown..).unwrap_or_default());
    Ok(shown.max(whole.len()))
}

/// Reports where a run first differs from plain decoding, in the bits of logits and in tokens. Returns whether it is
/// the same.
fn report(plain: &Run, run: &Run, prompt: usize, text: &Text) -> Result<bool> {
    let name = |token: u32| -> Result<String> { Ok(format!("{:?}", text.of(&[token])?)) };
    let mut rows = plain.logits.iter().zip(&run.logits);
    let bits = rows.position(|(a, b)| differences(a, b).next().is_some());
    if let Some(at) = bits {
        let (alone, block) = (&plain.logits[at], &run.logits[at]);
        println!(
            "  bits: token {} of the answer, position {}, is the first whose logits differ: {} of {}, by up to {}",
            at + 1,
            prompt + at,
            differences(alone, block).count(),
            alone.len(),
            differences(alone, block).fold(0.0, f32::max),
        );
    } else {
        println!("  bits: all logits are those of decoding token by token");
    }
    let mut pairs = plain.tokens.iter().zip(&run.tokens);
    if plain.tokens == run.tokens {
        println!("  tokens: the same\n");
    } else if let Some(at) = pairs.position(|(a, b)| a != b) {
        println!(
            "  tokens: token {} is the first that differs, {} for {}\n",
            at + 1,
            name(run.tokens[at])?,
            name(plain.tokens[at])?
        );
    } else {
        println!(
            "  tokens: {} for {}\n",
            run.tokens.len(),
            plain.tokens.len()
        );
    }
    Ok(bits.is_none() && plain.tokens == run.tokens)
}

/// The differences of logits whose bits differ.
fn differences(a: &[f16], b: &[f16]) -> impl Iterator<Item = f32> {
    let pairs = a.iter().zip(b);
    let other = pairs.filter(|(a, b)| a.to_bits() != b.to_bits());
    other.map(|(a, b)| (a.to_f32() - b.to_f32()).abs())
}
