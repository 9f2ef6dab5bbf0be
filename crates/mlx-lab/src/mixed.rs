//! One speculative stream under an exact policy and a batch under the default one, in one process:
//! what does the one cost the others?

use std::time::Instant;

use mlx_overlay::{RowPolicy, Stream};
use serde::{Deserialize, Serialize};

use crate::bench::Spread;
use crate::decode::{Cache, Sampler, Transformer};
use crate::machine::Machine;
use crate::saved::Layout;
use crate::setting::{self, Counters};
use crate::values::Noise;
use crate::{Error, Result};

/// What is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Sequences of the batch.
    pub batch: usize,
    /// Rows of the speculative stream's blocks.
    pub width: usize,
    /// Its policy.
    pub policy: RowPolicy,
    /// Steps of the batch, each a token a sequence.
    pub steps: usize,
}

/// One half of the comparison: the batch alone, or with a neighbour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Half {
    /// Quantized products of the batch, by the path that they took.
    pub kernels: Vec<(String, u64)>,
    /// The tokens of all sequences, step by step.
    pub tokens: Vec<Vec<u32>>,
    /// Seconds a step of the batch. `None` on a simulated device.
    pub seconds: Option<Spread>,
}

/// What it came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The layout, in a file.
    pub format: Layout,
    /// Where.
    pub machine: Machine,
    /// Sequences of the batch.
    pub batch: usize,
    /// Rows of the neighbour's blocks.
    pub width: usize,
    /// The neighbour's policy.
    pub policy: String,
    /// The batch alone.
    pub alone: Half,
    /// The batch with the neighbour.
    pub beside: Half,
    /// Dispatches of quantized kernels by the neighbour.
    pub neighbour: Vec<(String, u64)>,
}

impl Report {
    /// Whether the batch took the same kernels as often, and said the same, with and without the
    /// neighbour.
    pub fn is_free(&self) -> bool {
        self.alone.kernels == self.beside.kernels && self.alone.tokens == self.beside.tokens
    }

    /// How much longer a step of the batch took: the part, where a real device took the time.
    pub fn tax(&self) -> Option<f64> {
        let (alone, beside) = (self.alone.seconds?, self.beside.seconds?);
        Some(beside.median / alone.median - 1.0)
    }
}

/// Runs the batch alone, then step by step in turn with verify passes of the neighbour.
///
/// # Errors
/// MLX's; [`mlx_overlay::Error::NoPolicies`]; [`Error::Invalid`] for an empty batch.
pub fn run(
    model: &Transformer,
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report> {
    if options.batch == 0 || options.steps == 0 || !(2..=8).contains(&options.width) {
        return Err(Error::Invalid(
            "a batch has a sequence or more, steps are one or more, and blocks have 2 to 8 rows"
                .to_owned(),
        ));
    }
    let machine = Machine::here()?;
    let default = setting::stream(RowPolicy::DEFAULT)?;
    let exact = setting::stream(options.policy)?;
    let total = 2 * options.steps;
    let mut batch = Batch::new(model, options, &default)?;
    let (mut kernels, mut tokens, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..options.steps {
        progress(step, total);
        let before = Counters::now()?;
        let start = Instant::now();
        tokens.push(batch.step()?);
        times.push(start.elapsed().as_secs_f64());
        add(&mut kernels, before.since()?);
    }
    let seconds = |times: &[f64]| match machine.simulated {
        true => None,
        false => Spread::of(times, 1),
    };
    let alone = Half {
        kernels,
        tokens,
        seconds: seconds(&times),
    };
    let mut batch = Batch::new(model, options, &default)?;
    let mut cache = Cache::new(model, 1, options.width);
    let block = random(options.width, model, 0xb10c);
    let mut neighbour = Vec::new();
    let (mut kernels, mut tokens, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..options.steps {
        progress(options.steps + step, total);
        let before = Counters::now()?;
        exact.scope(|| {
            let logits = model.forward(&block, 1, &mut cache, &mut |_, _| Ok(()))?;
            exact.check_operations([&logits])?;
            Ok::<_, Error>(mlx_overlay::eval([&logits])?)
        })?;
        cache.truncate(0);
        add(&mut neighbour, before.since()?);
        let before = Counters::now()?;
        let start = Instant::now();
        tokens.push(batch.step()?);
        times.push(start.elapsed().as_secs_f64());
        add(&mut kernels, before.since()?);
    }
    progress(total, total);
    let beside = Half {
        kernels,
        tokens,
        seconds: seconds(&times),
    };
    Ok(Report {
        format: Layout,
        machine,
        batch: options.batch,
        width: options.width,
        policy: options.policy.to_string(),
        alone,
        beside,
        neighbour,
    })
}

/// Sequences that are decoded together, a row each.
struct Batch<'a> {
    model: &'a Transformer,
    stream: &'a Stream,
    cache: Cache,
    tokens: Vec<u32>,
}

impl<'a> Batch<'a> {
    fn new(model: &'a Transformer, options: &Options, stream: &'a Stream) -> Result<Self> {
        Ok(Self {
            model,
            stream,
            cache: Cache::new(model, options.batch, options.steps),
            tokens: random(options.batch, model, 0xba7c),
        })
    }

    fn step(&mut self) -> Result<Vec<u32>> {
        let position = self.cache.length();
        let greedy = Sampler {
            temperature: 0.0,
            seed: 0,
        };
        self.tokens = self.stream.scope(|| {
            let cache = &mut self.cache;
            let batch = self.tokens.len();
            let logits = self
                .model
                .forward(&self.tokens, batch, cache, &mut |_, _| Ok(()))?;
            greedy.choose(&logits, position)
        })?;
        Ok(self.tokens.clone())
    }
}

fn random(count: usize, model: &Transformer, seed: u64) -> Vec<u32> {
    let vocabulary = u32::try_from(model.shape().vocabulary).unwrap_or(u32::MAX);
    let mut noise = Noise::new(seed);
    (0..count).map(|_| noise.below(vocabulary)).collect()
}

fn add(total: &mut Vec<(String, u64)>, counts: Vec<(String, u64)>) {
    for (kernel, count) in counts {
        match total.iter_mut().find(|(name, _)| *name == kernel) {
            Some((_, sum)) => *sum += count,
            None => total.push((kernel, count)),
        }
    }
}

/// The outcome for people.
pub fn render(report: &Report) -> String {
    let kernels = |counts: &[(String, u64)]| {
        let texts = counts.iter().map(|(name, count)| format!("{name} {count}"));
        texts.collect::<Vec<_>>().join(", ")
    };
    let caveat = report
        .machine
        .caveat()
        .map_or_else(String::new, |c| format!("{c}\n"));
    let verdict = if report.is_free() {
        "the batch took the same kernels as often, and said the same: the neighbour costs it nothing \
         that counters show"
    } else {
        "the batch did something else beside its neighbour"
    };
    let tax = match (report.tax(), report.alone.seconds, report.beside.seconds) {
        (Some(tax), Some(alone), Some(beside)) => format!(
            "a step of the batch took {:.3} ms alone ({:.3} to {:.3}), {:.3} ms beside it ({:.3} to \
             {:.3}): {:+.1}%\n",
            alone.median * 1e3,
            alone.low * 1e3,
            alone.high * 1e3,
            beside.median * 1e3,
            beside.low * 1e3,
            beside.high * 1e3,
            tax * 100.0
        ),
        _ => String::new(),
    };
    format!(
        "{}\n{caveat}\nbatch of {} under default, alone:      {}\nthe same beside its neighbour:      \
         {}\nneighbour, blocks of {} under {}: {}\n\n{tax}verdict: {verdict}\n",
        report.machine.line(),
        report.batch,
        kernels(&report.alone.kernels),
        kernels(&report.beside.kernels),
        report.width,
        report.policy,
        kernels(&report.neighbour)
    )
}
