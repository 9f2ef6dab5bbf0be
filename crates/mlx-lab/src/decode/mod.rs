//! Token streams, decoded one by one and in blocks, under each policy.
//!
//! Everything but the quantized products is kept where rows do not depend on one another: blocks of
//! at most 8 rows, at most 32 query rows a key head, and contexts below the 1024 positions from
//! which MLX's attention makes two passes. [`Options::check`] refuses what is outside.

mod drafter;
mod folder;
mod origin;
mod session;
mod speculative;
mod transformer;

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use mlx_overlay::{Dtype, PolicyKind, Quantization, RowPolicy, Stream, has_policies};
use serde::{Deserialize, Serialize};

use crate::kernels;
use crate::machine::Machine;
use crate::probe::{self, Layer};
use crate::product::Product;
use crate::saved::Layout;
use crate::setting;
use crate::values::Noise;
use crate::{Error, Result};

pub use drafter::{Drafter, Lookup, Smaller};
pub use origin::{Origin, origin};
pub use session::Sampler;
pub use speculative::{Block, Run, classic, speculative};
pub use transformer::{Cache, Shape, Tap, Transformer};

/// From how many positions on MLX's attention makes two passes over the keys on GPUs of sizes s and
/// d, with a number of blocks that depends on the rows.
pub const ONE_PASS: usize = 1024;

/// Who guesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guesser {
    /// The first layers of the model with its head.
    FirstLayers(usize),
    /// What followed the same tokens before.
    Lookup,
}

/// What is decoded.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Policies to decode under.
    pub policies: Vec<RowPolicy>,
    /// Rows of the blocks.
    pub widths: Vec<usize>,
    /// Prompts, each a list of tokens.
    pub prompts: Vec<Vec<u32>>,
    /// Tokens after each prompt.
    pub tokens: usize,
    /// 0: the likeliest token. Otherwise the noise is that of the prompt's number.
    pub temperature: f32,
    /// Who guesses.
    pub guesser: Guesser,
}

impl Options {
    /// Random prompts of so many tokens.
    pub fn random_prompts(count: u64, length: usize, vocabulary: usize) -> Vec<Vec<u32>> {
        let vocabulary = u32::try_from(vocabulary).unwrap_or(u32::MAX);
        (0..count)
            .map(|seed| {
                let mut noise = Noise::new(seed ^ 0x5eed);
                (0..length).map(|_| noise.below(vocabulary)).collect()
            })
            .collect()
    }

    /// Whether attention computes each row on its own for all that is asked.
    ///
    /// # Errors
    /// [`Error::Invalid`] says what is too long or too wide.
    pub fn check(&self, shape: &Shape) -> Result<()> {
        let width = self.widths.iter().copied().max().unwrap_or(0);
        let prompt = self.prompts.iter().map(Vec::len).max().unwrap_or(0);
        let group = shape.heads / shape.kv_heads.max(1);
        let complaint = if self.prompts.is_empty() || self.prompts.iter().any(Vec::is_empty) {
            "a prompt has one token or more".to_owned()
        } else if self.widths.is_empty() || self.widths.iter().any(|w| !(2..=8).contains(w)) {
            "blocks have 2 to 8 rows: from 9 on attention takes another kernel".to_owned()
        } else if width * group > 32 {
            format!(
                "{width} rows for {group} heads a key head are more than the 32 query rows of one \
                 attention kernel: take blocks of {} rows or fewer",
                32 / group.max(1)
            )
        } else if prompt + self.tokens + width > ONE_PASS {
            format!(
                "{} positions are more than {ONE_PASS}, from where attention makes two passes whose \
                 blocks depend on the rows",
                prompt + self.tokens + width
            )
        } else if self.tokens == 0 {
            "nothing to decode".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::Invalid(complaint))
    }
}

/// One policy, one width, one prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    /// The policy.
    pub policy: String,
    /// Rows of the blocks.
    pub width: usize,
    /// The prompt's number.
    pub prompt: usize,
    /// Tokens that were compared.
    pub tokens: usize,
    /// The first token that is not the one decoded alone: under `default`, or under `wide` if that is the policy.
    pub differs_at: Option<usize>,
    /// Where the first difference in any operation starts. It can be there long before a token
    /// differs. Not looked for under a policy that the probe found exact, unless tokens differ.
    pub origin: Option<Origin>,
    /// Guesses.
    pub proposed: usize,
    /// Guesses that were right.
    pub accepted: usize,
    /// Tokens a second. `None` on a simulated device.
    pub tokens_per_s: Option<f64>,
}

/// One prompt, decoded token by token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Text {
    /// The prompt's number.
    pub prompt: usize,
    /// Tokens.
    pub tokens: usize,
    /// Different ones among them.
    pub different: usize,
    /// Entropy of the tokens' frequencies, in bits a token.
    pub entropy: f64,
    /// Tokens a second. `None` on a simulated device.
    pub tokens_per_s: Option<f64>,
}

/// All that was decoded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The layout, in a file.
    pub format: Layout,
    /// Where.
    pub machine: Machine,
    /// The model's dimensions.
    pub shape: Shape,
    /// The texts.
    pub texts: Vec<Text>,
    /// The comparisons.
    pub stretches: Vec<Stretch>,
    /// Policies whose kernels a probe of the same products has certified, and which ran nothing
    /// else.
    pub certified: Vec<String>,
}

impl Report {
    /// Policies under which every token was the one decoded alone.
    pub fn same(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.stretches.iter().map(|s| s.policy.as_str()).collect();
        names.dedup();
        names.retain(|name| {
            let mut of = self.stretches.iter().filter(|s| s.policy == *name);
            of.all(|stretch| stretch.differs_at.is_none())
        });
        names
    }
}

/// Decodes, and compares.
///
/// # Errors
/// Those of [`Options::check`]; MLX's; [`Error::Uncertified`] if a policy that a probe found exact
/// dispatched kernels that the probe did not see.
pub fn run(
    model: &Transformer,
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report> {
    options.check(model.shape())?;
    let machine = Machine::here()?;
    let default = setting::stream(RowPolicy::DEFAULT)?;
    let guesses = setting::stream(RowPolicy::DEFAULT)?;
    let small = match options.guesser {
        Guesser::FirstLayers(count) => Some(model.first_layers(count)),
        Guesser::Lookup => None,
    };
    let probed = probe(model, options)?;
    let total = options.prompts.len() * (1 + options.policies.len() * options.widths.len());
    let mut done = 0;
    let mut step = || {
        done += 1;
        progress(done, total);
    };
    let rate = |tokens: usize, run: &Run| {
        (!machine.simulated).then(|| tokens as f64 / run.elapsed.as_secs_f64())
    };
    let mut texts = Vec::new();
    let mut alone = Vec::new();
    for (i, prompt) in options.prompts.iter().enumerate() {
        let run = classic(model, &default, sampler(options, i), prompt, options.tokens)?;
        texts.push(Text {
            prompt: i,
            tokens: run.tokens.len(),
            different: frequencies(&run.tokens).len(),
            entropy: entropy(&run.tokens),
            tokens_per_s: rate(run.tokens.len(), &run),
        });
        alone.push(run.tokens);
        step();
    }
    let mut stretches = Vec::new();
    let mut certified = Vec::new();
    for &policy in &options.policies {
        let stream = setting::stream(policy)?;
        let certificate = probed.as_ref().and_then(|p| p.certificate(policy).ok());
        let mut served: BTreeSet<String> = BTreeSet::new();
        // `wide` has bits of its own, those of one row included.
        let own = if policy.kind() == PolicyKind::Wide {
            let prompts = options.prompts.iter().enumerate();
            let tokens = prompts.map(|(i, prompt)| {
                Ok(classic(model, &stream, sampler(options, i), prompt, options.tokens)?.tokens)
            });
            Some(tokens.collect::<Result<Vec<_>>>()?)
        } else {
            None
        };
        let alone = own.as_ref().unwrap_or(&alone);
        for &width in &options.widths {
            for (i, prompt) in options.prompts.iter().enumerate() {
                let sampler = sampler(options, i);
                let capacity = prompt.len() + options.tokens + 2 * width;
                let mut drafter: Box<dyn Drafter> = match &small {
                    Some(small) => Box::new(Smaller::new(small, &guesses, sampler, capacity)),
                    None => Box::new(Lookup),
                };
                let run = speculative(
                    model,
                    &stream,
                    sampler,
                    drafter.as_mut(),
                    prompt,
                    options.tokens,
                    width,
                )?;
                let differs_at = run.tokens.iter().zip(&alone[i]).position(|(a, b)| a != b);
                let (proposed, accepted) = run.guesses();
                stretches.push(Stretch {
                    policy: policy.to_string(),
                    width,
                    prompt: i,
                    tokens: run.tokens.len(),
                    differs_at,
                    origin: if differs_at.is_some() || certificate.is_none() {
                        origin(model, &stream, prompt, &run.blocks)?
                    } else {
                        None
                    },
                    proposed,
                    accepted,
                    tokens_per_s: rate(run.tokens.len(), &run),
                });
                // Counted apart from the guesses, which take other kernels: the blocks once more.
                if i == 0 {
                    let (_, kernels) =
                        kernels::of_all(|| replay(model, &stream, prompt, &run.blocks))?;
                    served.extend(kernels);
                }
                step();
            }
        }
        if let Some(certificate) = certificate {
            certificate.check(widest(options), &served)?;
            certified.push(policy.to_string());
        }
    }
    Ok(Report {
        format: Layout,
        machine,
        shape: model.shape().clone(),
        texts,
        stretches,
        certified,
    })
}

/// A few blocks as they were verified.
fn replay(model: &Transformer, stream: &Stream, prompt: &[u32], blocks: &[Block]) -> Result<()> {
    let blocks = &blocks[..blocks.len().min(4)];
    let end = blocks.iter().map(|b| b.start + b.tokens.len()).max();
    let mut cache = Cache::new(model, 1, end.unwrap_or(prompt.len()));
    let pass = |tokens: &[u32], cache: &mut Cache| {
        stream.scope(|| {
            let logits = model.forward(tokens, 1, cache, &mut |_, _| Ok(()))?;
            Ok::<_, Error>(mlx_overlay::eval([&logits])?)
        })
    };
    for token in prompt {
        pass(&[*token], &mut cache)?;
    }
    for block in blocks {
        pass(&block.tokens, &mut cache)?;
        cache.truncate(block.start + 1 + block.accepted);
    }
    Ok(())
}

/// Probes the model's own products at the widths that will be served; `None` where nothing can be
/// asked.
fn probe(model: &Transformer, options: &Options) -> Result<Option<probe::Report>> {
    if !has_policies() {
        return Ok(None);
    }
    let layers = model.products();
    if layers.is_empty() {
        return Ok(None);
    }
    let few = probe::Options {
        // Guesses can be fewer than asked for.
        rows: (2..=widest(options)).collect(),
        policies: options.policies.clone(),
        seeds: 1,
        dtype: Dtype::Bf16,
        outputs: Some(8),
        contexts: Vec::new(),
        simulated: false,
    };
    probe::products(&layers, &few, &mut |_, _| ()).map(Some)
}

/// Rows of the longest block.
fn widest(options: &Options) -> usize {
    options.widths.iter().copied().max().unwrap_or(2)
}

fn sampler(options: &Options, prompt: usize) -> Sampler {
    Sampler {
        temperature: options.temperature,
        seed: prompt as u64,
    }
}

fn frequencies(tokens: &[u32]) -> HashMap<u32, usize> {
    let mut counts = HashMap::new();
    for &token in tokens {
        *counts.entry(token).or_default() += 1;
    }
    counts
}

/// Entropy of the tokens' frequencies, in bits a token.
fn entropy(tokens: &[u32]) -> f64 {
    let total = tokens.len() as f64;
    let part = |count: usize| {
        let part = count as f64 / total;
        -part * part.log2()
    };
    frequencies(tokens).into_values().map(part).sum()
}

impl Transformer {
    /// Its quantized products, those alike together.
    pub fn products(&self) -> Vec<Layer> {
        let mut found: Vec<Layer> = Vec::new();
        for product in self.matrices() {
            let alike = |layer: &&mut Layer| layer.product.shape() == product.shape();
            match found.iter_mut().find(alike) {
                Some(layer) => layer.count += 1,
                None => found.push(Layer { product, count: 1 }),
            }
        }
        found
    }

    fn matrices(&self) -> Vec<Product> {
        use transformer::Linear;
        let named = |name: String, linear: &Linear| match linear {
            Linear::Quantized(matrix, _) => Some(Product {
                name,
                n: matrix.rows(),
                k: matrix.columns(),
                quantization: matrix.quantization(),
            }),
            Linear::Dense(..) => None,
        };
        let mut products = Vec::new();
        for (i, layer) in self.layers.iter().enumerate() {
            for (name, linear) in [
                ("q_proj", &layer.q),
                ("k_proj", &layer.k),
                ("v_proj", &layer.v),
                ("o_proj", &layer.o),
                ("gate_proj", &layer.gate),
                ("up_proj", &layer.up),
                ("down_proj", &layer.down),
            ] {
                products.extend(named(format!("layer {i}, {name}"), linear));
            }
        }
        products.extend(named("head".to_owned(), &self.head));
        products
    }
}

/// A model that shows differences in little time: two layers, of which the first alone guesses the
/// next token often enough.
///
/// # Errors
/// MLX's.
pub fn synthetic(seed: u64) -> Result<Transformer> {
    let shape = Shape {
        vocabulary: 256,
        hidden: 512,
        layers: 2,
        heads: 8,
        kv_heads: 2,
        head_dim: 64,
        intermediate: 512,
        rope_base: 10_000.0,
        eps: 1e-5,
    };
    Transformer::synthetic(shape, Quantization::affine(4, 64)?, &[3.0, 0.45], seed)
}

/// The outcome for people.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    let shape = &report.shape;
    // Writing to a String does not fail.
    let _ = writeln!(text, "{}", report.machine.line());
    if let Some(caveat) = report.machine.caveat() {
        let _ = writeln!(text, "{caveat}");
    }
    let _ = writeln!(
        text,
        "model: {} layers, {} values a row, {} heads over {} of {}, {} tokens in the vocabulary\n",
        shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.vocabulary
    );
    let tokens: usize = report.texts.iter().map(|t| t.tokens).sum();
    let entropies = report.texts.iter().map(|t| t.entropy);
    let (low, high) = entropies.fold((f64::MAX, 0f64), |(low, high), e| (low.min(e), high.max(e)));
    let _ = writeln!(
        text,
        "{} texts of {tokens} tokens together; entropy of their tokens {low:.1} to {high:.1} bits (at \
         most {:.1}){}\n",
        report.texts.len(),
        (shape.vocabulary as f64).log2(),
        rate(report.texts.iter().map(|t| t.tokens_per_s))
    );
    let mut last = None;
    for stretch in &report.stretches {
        let key = (stretch.policy.as_str(), stretch.width);
        if last == Some(key) {
            continue;
        }
        last = Some(key);
        let of: Vec<&Stretch> = report
            .stretches
            .iter()
            .filter(|s| (s.policy.as_str(), s.width) == key)
            .collect();
        let sum = |count: fn(&Stretch) -> usize| of.iter().map(|s| count(s)).sum::<usize>();
        let (proposed, accepted) = (sum(|s| s.proposed), sum(|s| s.accepted));
        let differing = of.iter().filter(|s| s.differs_at.is_some()).count();
        let _ = writeln!(
            text,
            "{:<9} blocks of {}: {} of {} texts differ, {} tokens, {:.0}% of {proposed} guesses \
             accepted{}",
            stretch.policy,
            stretch.width,
            differing,
            of.len(),
            sum(|s| s.tokens),
            100.0 * accepted as f64 / (proposed as f64).max(1.0),
            rate(of.iter().map(|s| s.tokens_per_s))
        );
        for stretch in of {
            if let Some(origin) = &stretch.origin {
                let tokens = match stretch.differs_at {
                    Some(at) => format!("other tokens from {at} on"),
                    None => "the same tokens, other bits".to_owned(),
                };
                let _ = writeln!(
                    text,
                    "          text {}: {tokens}; starts at position {}, in {} of a block of {} \
                     rows ({} of {} elements)",
                    stretch.prompt,
                    origin.position,
                    origin.operation,
                    origin.rows,
                    origin.differing,
                    origin.elements
                );
            }
        }
    }
    let same = report.same();
    let _ = writeln!(
        text,
        "\nsame tokens as one by one: {}",
        if same.is_empty() {
            "under no policy".to_owned()
        } else {
            same.join(", ")
        }
    );
    if !report.certified.is_empty() {
        let _ = writeln!(
            text,
            "kernels that ran are those that a probe of the same products found exact: {}",
            report.certified.join(", ")
        );
    }
    text
}

/// The median of rates, where there are any.
fn rate(rates: impl Iterator<Item = Option<f64>>) -> String {
    let rates: Vec<f64> = rates.flatten().collect();
    crate::bench::Spread::of(&rates, 1).map_or_else(String::new, |spread| {
        format!("; {:.1} tokens a second", spread.median)
    })
}
