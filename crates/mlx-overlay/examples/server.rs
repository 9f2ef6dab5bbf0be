//! A small server loop: requests come and go, and each step computes one token of every active sequence, in one batch
//! of rows. Two threads share the weights, which are random: one works on a stream with the policy `exact`, the other
//! on one without a policy.
//!
//! Afterwards every sequence is decoded alone. On the exact stream, the tokens and the bits of the logits must be the
//! same; for the other stream, the number of equal sequences is printed.
//!
//! ```console
//! $ cargo run -p mlx-overlay --example server
//! ```

use std::collections::VecDeque;
use std::thread;

use anyhow::{Result, bail, ensure};
use mlx_overlay::{
    Array, Device, Dtype, Evaluated, EvaluatedMatrix, Frequencies, Mask, Positions, Quantization,
    QuantizedMatrix, RopeOptions, RowPolicy, Stream, add, argmax, attention, concatenate, eval,
    has_policies, memory, multiply, quantize, quantized_matmul, random, reshape, rms_norm,
    rope_with, sigmoid, slice, slice_update, take,
};

const VOCABULARY: usize = 96;
const WIDTH: usize = 128;
const HIDDEN: usize = 256;
const LAYERS: usize = 2;
const HEADS: usize = 2;
const KV_HEADS: usize = 1;
const DIMS: usize = 64;
/// Positions of a cache.
const ROOM: usize = 32;
/// Sequences decoded at once.
const SEATS: usize = 4;

/// A client's request.
#[derive(Clone, Copy)]
struct Request {
    /// The step at which it arrives.
    arrives: usize,
    prompt: &'static [u32],
    /// Number of tokens to generate.
    wanted: usize,
}

const REQUESTS: [Request; 6] = [
    Request {
        arrives: 0,
        prompt: &[5, 17, 3],
        wanted: 6,
    },
    Request {
        arrives: 0,
        prompt: &[80],
        wanted: 9,
    },
    Request {
        arrives: 1,
        prompt: &[1, 2, 3, 4, 5],
        wanted: 4,
    },
    Request {
        arrives: 3,
        prompt: &[42, 42],
        wanted: 7,
    },
    Request {
        arrives: 4,
        prompt: &[9, 60],
        wanted: 5,
    },
    Request {
        arrives: 6,
        prompt: &[33, 7, 90, 11],
        wanted: 3,
    },
];

fn main() -> Result<()> {
    if !has_policies() || !Device::Gpu.is_available()? {
        bail!(
            "no GPU, real or simulated, whose MLX has policies: `cargo xtask build --backend sim`"
        );
    }
    let weights = Weights::new()?;
    let (exact, default) = thread::scope(|threads| {
        let exact = threads.spawn(|| serve(&weights, Some(RowPolicy::EXACT)));
        let default = threads.spawn(|| serve(&weights, None));
        (exact.join(), default.join())
    });
    let [exact, default] = [exact, default].map(|served| served.expect("it does not panic"));
    let (exact, default) = (exact?, default?);
    let alone = alone(&weights)?;
    let same = |served: &[Answer]| {
        let pairs = served.iter().zip(&alone);
        pairs.filter(|(served, alone)| served == alone).count()
    };
    let count = REQUESTS.len();
    let tokens: usize = exact.iter().map(|answer| answer.tokens.len()).sum();
    #[expect(clippy::print_stdout, reason = "an example's result")]
    {
        println!("{count} sequences, {tokens} tokens, up to {SEATS} at once");
        println!("exact:   {} of {count} as alone", same(&exact));
        println!("default: {} of {count} as alone", same(&default));
        println!("memory:  {} bytes at most", memory::in_use()?.peak);
    }
    ensure!(
        same(&exact) == count,
        "a sequence of the exact stream is not what it is alone"
    );
    Ok(())
}

/// The result of a sequence: its tokens, and the bits of all its logits.
#[derive(PartialEq)]
struct Answer {
    tokens: Vec<u32>,
    logits: Vec<u32>,
}

/// Serves all requests in order of arrival.
fn serve(weights: &Weights, policy: Option<RowPolicy>) -> Result<Vec<Answer>> {
    let stream = match policy {
        Some(policy) => Stream::with_policy(policy)?,
        None => Stream::new(Device::Gpu)?,
    };
    stream.scope(|| {
        let model = weights.to_model()?;
        let mut waiting: VecDeque<_> = REQUESTS.into_iter().enumerate().collect();
        let mut seated: Vec<Sequence> = Vec::new();
        let mut answers: Vec<Option<Answer>> = REQUESTS.map(|_| None).into();
        for step in 0.. {
            while seated.len() < SEATS
                && let Some(&(number, request)) = waiting.front()
                && request.arrives <= step
            {
                waiting.pop_front();
                seated.push(Sequence::new(number, request)?);
            }
            if seated.is_empty() && waiting.is_empty() {
                break;
            }
            let logits = model.step(&mut seated)?;
            if policy.is_some() {
                stream.check_operations([&logits])?;
            }
            finish_step(&mut seated, &logits)?;
            for sequence in seated.extract_if(.., |sequence| sequence.is_done()) {
                answers[sequence.number] = Some(sequence.answer);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    })
}

/// Decodes each sequence alone, on a stream without a policy.
fn alone(weights: &Weights) -> Result<Vec<Answer>> {
    let model = weights.to_model()?;
    let decode = |(number, request)| {
        let mut one = vec![Sequence::new(number, request)?];
        while !one[0].is_done() {
            let logits = model.step(&mut one)?;
            finish_step(&mut one, &logits)?;
        }
        Ok(one.remove(0).answer)
    };
    REQUESTS.into_iter().enumerate().map(decode).collect()
}

/// Chooses the next token of each sequence, on the device, and stores it with its logits.
fn finish_step(sequences: &mut [Sequence], logits: &Array) -> Result<()> {
    let chosen = argmax(logits)?;
    // This also computes the caches.
    eval([&chosen, logits])?;
    let (tokens, logits) = (chosen.to_vec::<u32>()?, logits.to_vec::<f32>()?);
    for (row, sequence) in sequences.iter_mut().enumerate() {
        let rest = sequence
            .request
            .prompt
            .len()
            .saturating_sub(sequence.position);
        if rest > 0 {
            sequence.next =
                Array::from_slice(&sequence.request.prompt[sequence.position..][..1], &[1])?;
        } else {
            let only = row..row + 1;
            sequence.next = slice(&chosen, std::slice::from_ref(&only))?;
            sequence.answer.tokens.push(tokens[row]);
        }
        let row = &logits[row * VOCABULARY..][..VOCABULARY];
        sequence
            .answer
            .logits
            .extend(row.iter().map(|logit| logit.to_bits()));
    }
    Ok(())
}

struct Sequence {
    number: usize,
    request: Request,
    /// Keys and values of each layer.
    caches: Vec<[Array; 2]>,
    /// Number of tokens in the caches.
    position: usize,
    /// The token to compute next, on the device.
    next: Array,
    answer: Answer,
}

impl Sequence {
    fn new(number: usize, request: Request) -> Result<Self> {
        let cache = || Array::zeros(&[1, KV_HEADS, ROOM, DIMS], Dtype::F32);
        let both = |_| Ok([cache()?, cache()?]);
        Ok(Self {
            number,
            request,
            caches: (0..LAYERS).map(both).collect::<Result<_>>()?,
            position: 0,
            next: Array::from_slice(&request.prompt[..1], &[1])?,
            answer: Answer {
                tokens: Vec::new(),
                logits: Vec::new(),
            },
        })
    }

    fn is_done(&self) -> bool {
        self.answer.tokens.len() >= self.request.wanted
    }
}

/// Weights that any thread can read.
struct Weights {
    embeddings: Evaluated,
    norm: Evaluated,
    layers: Vec<[EvaluatedMatrix; 7]>,
    head: EvaluatedMatrix,
}

/// Rows and columns of the matrices of a layer: queries, keys, values, output, gate, up, down.
const SHAPES: [[usize; 2]; 7] = [
    [HEADS * DIMS, WIDTH],
    [KV_HEADS * DIMS, WIDTH],
    [KV_HEADS * DIMS, WIDTH],
    [WIDTH, HEADS * DIMS],
    [HIDDEN, WIDTH],
    [HIDDEN, WIDTH],
    [WIDTH, HIDDEN],
];

impl Weights {
    fn new() -> Result<Self> {
        let mut seed = 0;
        let mut made_up = |[rows, columns]: [usize; 2]| {
            seed += 1;
            let key = random::key(seed)?;
            random::uniform(&[rows, columns], -0.2, 0.2, Dtype::F32, &key)
        };
        let format = Quantization::affine(4, 64)?;
        let mut matrix = |shape| quantize(&made_up(shape)?, format)?.evaluate();
        let layers = (0..LAYERS).map(|_| {
            let made: Vec<_> = SHAPES
                .into_iter()
                .map(&mut matrix)
                .collect::<mlx_overlay::Result<_>>()?;
            Ok(made.try_into().expect("as many as there are shapes"))
        });
        let layers = layers.collect::<mlx_overlay::Result<_>>()?;
        Ok(Self {
            layers,
            head: matrix([VOCABULARY, WIDTH])?,
            embeddings: made_up([VOCABULARY, WIDTH])?.evaluate()?,
            norm: Array::full(&[WIDTH], 1.0f32)?.evaluate()?,
        })
    }

    fn to_model(&self) -> Result<Model> {
        let layer = |matrices: &[EvaluatedMatrix; 7]| {
            let matrices: Vec<_> = matrices
                .iter()
                .map(EvaluatedMatrix::to_matrix)
                .collect::<mlx_overlay::Result<_>>()?;
            Ok(matrices.try_into().expect("as many as there are shapes"))
        };
        Ok(Model {
            embeddings: self.embeddings.to_array()?,
            norm: self.norm.to_array()?,
            layers: self.layers.iter().map(layer).collect::<Result<_>>()?,
            head: self.head.to_matrix()?,
        })
    }
}

struct Model {
    embeddings: Array,
    norm: Array,
    layers: Vec<[QuantizedMatrix; 7]>,
    head: QuantizedMatrix,
}

impl Model {
    /// The logits of the next token of each sequence, one row each.
    fn step(&self, sequences: &mut [Sequence]) -> mlx_overlay::Result<Array> {
        let tokens: Vec<&Array> = sequences.iter().map(|sequence| &sequence.next).collect();
        let mut x = take(&self.embeddings, &concatenate(&tokens, 0)?, 0)?;
        for (number, layer) in self.layers.iter().enumerate() {
            let [queries, keys, values, output, gate, up, down] = layer;
            let h = rms_norm(&x, &self.norm, 1e-5)?;
            let rows = [queries, keys, values].map(|w| quantized_matmul(&h, w));
            let seen = attend(number, rows, sequences)?;
            x = add(&x, &quantized_matmul(&seen, output)?)?;
            let h = rms_norm(&x, &self.norm, 1e-5)?;
            let gate = quantized_matmul(&h, gate)?;
            let gate = multiply(&gate, &sigmoid(&gate)?)?;
            let h = multiply(&gate, &quantized_matmul(&h, up)?)?;
            x = add(&x, &quantized_matmul(&h, down)?)?;
        }
        for sequence in sequences {
            sequence.position += 1;
        }
        quantized_matmul(&rms_norm(&x, &self.norm, 1e-5)?, &self.head)
    }
}

/// Attention of one layer: each sequence over its own keys, one for each of its positions.
fn attend(
    layer: usize,
    [queries, keys, values]: [mlx_overlay::Result<Array>; 3],
    sequences: &mut [Sequence],
) -> mlx_overlay::Result<Array> {
    let count = sequences.len();
    let positions: Vec<i32> = sequences
        .iter()
        .map(|sequence| sequence.position as i32)
        .collect();
    let positions = Array::from_slice(&positions, &[count])?;
    let rotation = RopeOptions::new(DIMS, Frequencies::Base(10_000.0));
    let heads = |rows: Array, heads| reshape(&rows, &[count, heads, 1, DIMS]);
    let rotated = |rows| rope_with(&rows, &rotation, Positions::Each(&positions));
    let queries = rotated(heads(queries?, HEADS)?)?;
    let keys = rotated(heads(keys?, KV_HEADS)?)?;
    let values = heads(values?, KV_HEADS)?;
    let mut seen = Vec::new();
    for (row, sequence) in sequences.iter_mut().enumerate() {
        let at = sequence.position;
        let mut visible = Vec::new();
        for (cache, new) in sequence.caches[layer].iter_mut().zip([&keys, &values]) {
            let new = slice(new, &[row..row + 1, 0..KV_HEADS, 0..1, 0..DIMS])?;
            *cache = slice_update(cache, &new, &[0..1, 0..KV_HEADS, at..at + 1, 0..DIMS])?;
            visible.push(slice(cache, &[0..1, 0..KV_HEADS, 0..at + 1, 0..DIMS])?);
        }
        let query = slice(&queries, &[row..row + 1, 0..HEADS, 0..1, 0..DIMS])?;
        let scale = (DIMS as f32).sqrt().recip();
        seen.push(attention(
            &query,
            &visible[0],
            &visible[1],
            scale,
            Mask::Causal,
            None,
        )?);
    }
    let seen: Vec<&Array> = seen.iter().collect();
    reshape(&concatenate(&seen, 0)?, &[count, HEADS * DIMS])
}
