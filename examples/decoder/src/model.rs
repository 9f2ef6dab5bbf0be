//! A model of the Llama family: its weights, a pass over a block of tokens, and the cache of keys and values.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use mlx_overlay::{
    Array, Mask, QuantizedMatrix, Rope, add, attention, dequantize, eval, f16, multiply,
    quantized_matmul, reshape, rms_norm, rope, sigmoid, slice, slice_update, transpose_axes,
};

use crate::gguf::Gguf;
use crate::weights::{Packed, interleaved, vector};

/// The dimensions of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Layers.
    pub layers: usize,
    /// Width of a token between layers.
    pub hidden: usize,
    /// Width inside a layer's feed-forward part.
    pub inner: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Number of tokens in the vocabulary.
    pub vocabulary: usize,
    /// Number of positions for which the model was trained.
    pub context: usize,
    /// The number that norms add before the root.
    pub eps: f32,
    /// Base of the frequencies of positions.
    pub rope_base: f32,
}

impl Config {
    /// Reads the metadata.
    pub fn read(file: &Gguf) -> Result<Self> {
        let path = file.path().display();
        let family = file.text("general.architecture")?;
        ensure!(
            family == "llama",
            "{path} is a model of the family `{family}`, but this example supports only `llama`"
        );
        for key in ["llama.rope.scaling.type", "llama.expert_count"] {
            ensure!(
                file.value(key).is_none(),
                "{path} has `{key}`, which this example does not support"
            );
        }
        let (hidden, heads) = (
            file.integer("llama.embedding_length")?,
            file.integer("llama.attention.head_count")?,
        );
        let config = Self {
            layers: file.integer("llama.block_count")?,
            hidden,
            inner: file.integer("llama.feed_forward_length")?,
            heads,
            kv_heads: file.integer("llama.attention.head_count_kv")?,
            head_dim: file.integer("llama.rope.dimension_count")?,
            vocabulary: file.integer("llama.vocab_size")?,
            context: file.integer("llama.context_length")?,
            eps: file.float("llama.attention.layer_norm_rms_epsilon")?,
            rope_base: file.float("llama.rope.freq_base")?,
        };
        ensure!(
            // The checks for zero bound the products below: a tensor has `hidden` columns.
            config.heads > 0
                && config.head_dim > 0
                && config.heads.checked_mul(config.head_dim) == Some(hidden)
                && config.head_dim.is_multiple_of(2)
                && config.kv_heads > 0
                && config.heads.is_multiple_of(config.kv_heads),
            "{path}: the dimensions of heads do not match: {config:?}"
        );
        ensure!(
            config.eps.is_finite() && config.rope_base.is_finite(),
            "{path}: a number is not finite: {config:?}"
        );
        Ok(config)
    }

    /// The names of all matrices and vectors of a model, in GGUF.
    fn names(&self) -> BTreeSet<String> {
        let parts = MATRICES.iter().chain(&NORMS);
        let layers = (0..self.layers).flat_map(|layer| {
            let parts = parts.clone();
            parts.map(move |part| format!("blk.{layer}.{part}.weight"))
        });
        let rest = ["token_embd.weight", "output_norm.weight"].map(str::to_owned);
        layers.chain(rest).collect()
    }

    /// The shape of each of a layer's matrices.
    fn shapes(&self) -> [[usize; 2]; 7] {
        let kv = self.kv_heads * self.head_dim;
        [
            [self.hidden, self.hidden],
            [kv, self.hidden],
            [kv, self.hidden],
            [self.hidden, self.hidden],
            [self.inner, self.hidden],
            [self.inner, self.hidden],
            [self.hidden, self.inner],
        ]
    }
}

/// A layer's matrices.
pub const MATRICES: [&str; 7] = [
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
];

/// A layer's norms.
pub const NORMS: [&str; 2] = ["attn_norm", "ffn_norm"];

/// The weights of a file in MLX's layout, before they are passed to MLX.
#[derive(Debug)]
pub struct Weights {
    pub config: Config,
    /// The embedding of tokens, which is also the head.
    pub embedding: Packed,
    /// The matrices and norms of each layer, in the order of [`MATRICES`] and [`NORMS`].
    pub layers: Vec<([Packed; 7], [Vec<f16>; 2])>,
    /// The last norm.
    pub norm: Vec<f16>,
}

impl Weights {
    /// Reads all tensors of a file. A tensor that would not be used is an error.
    pub fn read(file: &Gguf) -> Result<Self> {
        let config = Config::read(file)?;
        let tensors = file.names().count();
        ensure!(
            tensors / (MATRICES.len() + NORMS.len()) >= config.layers,
            "{}: {tensors} tensors are too few for {} layers",
            file.path().display(),
            config.layers
        );
        let known = config.names();
        for name in file.names() {
            ensure!(
                known.contains(name),
                "{} has a tensor `{name}`, which this example does not support",
                file.path().display()
            );
        }
        let mut layers = Vec::new();
        for layer in 0..config.layers {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            let mut matrices = Vec::new();
            for (part, shape) in MATRICES.iter().zip(config.shapes()) {
                matrices.push(match *part {
                    "attn_q" | "attn_k" => {
                        let place = |row| interleaved(row, config.head_dim);
                        Packed::with_rows(file, &name(part), shape, place)?
                    }
                    _ => Packed::of(file, &name(part), shape)?,
                });
            }
            let matrices = matrices.try_into().expect("as many as there are names");
            let norm = |part| vector(file, &name(part), config.hidden);
            layers.push((matrices, [norm(NORMS[0])?, norm(NORMS[1])?]));
        }
        let shape = [config.vocabulary, config.hidden];
        Ok(Self {
            config,
            embedding: Packed::of(file, "token_embd.weight", shape)?,
            layers,
            norm: vector(file, "output_norm.weight", config.hidden)?,
        })
    }
}

/// A model that MLX can compute.
#[derive(Debug)]
pub struct Model {
    pub config: Config,
    embedding: QuantizedMatrix,
    layers: Vec<Layer>,
    norm: Array,
}

#[derive(Debug)]
struct Layer {
    attention_norm: Array,
    q: QuantizedMatrix,
    k: QuantizedMatrix,
    v: QuantizedMatrix,
    output: QuantizedMatrix,
    feed_forward_norm: Array,
    gate: QuantizedMatrix,
    up: QuantizedMatrix,
    down: QuantizedMatrix,
}

impl Model {
    /// Passes the weights to MLX.
    pub fn new(weights: &Weights) -> Result<Self> {
        let norm = |values: &[f16]| Array::from_slice(values, &[values.len()]);
        let mut layers = Vec::new();
        for ([q, k, v, output, gate, up, down], [first, second]) in &weights.layers {
            layers.push(Layer {
                attention_norm: norm(first)?,
                q: q.matrix()?,
                k: k.matrix()?,
                v: v.matrix()?,
                output: output.matrix()?,
                feed_forward_norm: norm(second)?,
                gate: gate.matrix()?,
                up: up.matrix()?,
                down: down.matrix()?,
            });
        }
        Ok(Self {
            config: weights.config,
            embedding: weights.embedding.matrix()?,
            layers,
            norm: norm(&weights.norm)?,
        })
    }

    /// The rows (`[tokens, hidden]`) of tokens after those in the cache; adds them to the cache.
    pub fn forward(&self, tokens: &[u32], cache: &mut Cache) -> Result<Array> {
        cache.make_room(tokens.len())?;
        let mut x = dequantize(&self.embedding.take_rows(tokens)?)?;
        for (layer, kept) in self.layers.iter().zip(&mut cache.layers) {
            let h = rms_norm(&x, &layer.attention_norm, self.config.eps)?;
            let attended = self.attend(layer, &h, cache.length, kept)?;
            x = add(&x, &quantized_matmul(&attended, &layer.output)?)?;

            let h = rms_norm(&x, &layer.feed_forward_norm, self.config.eps)?;
            let gate = quantized_matmul(&h, &layer.gate)?;
            let inner = multiply(
                &multiply(&gate, &sigmoid(&gate)?)?,
                &quantized_matmul(&h, &layer.up)?,
            )?;
            x = add(&x, &quantized_matmul(&inner, &layer.down)?)?;
        }
        cache.length += tokens.len();
        Ok(rms_norm(&x, &self.norm, self.config.eps)?)
    }

    /// The logits (`[tokens, vocabulary]`) of rows.
    pub fn logits(&self, rows: &Array) -> Result<Array> {
        Ok(quantized_matmul(rows, &self.embedding)?)
    }

    fn attend(
        &self,
        layer: &Layer,
        h: &Array,
        position: usize,
        kept: &mut [Array; 2],
    ) -> Result<Array> {
        let Config {
            heads,
            kv_heads,
            head_dim,
            hidden,
            ..
        } = self.config;
        let rows = h.shape()[0];
        let by_head = |matrix: &QuantizedMatrix, heads: usize| -> Result<Array> {
            let x = reshape(&quantized_matmul(h, matrix)?, &[1, rows, heads, head_dim])?;
            Ok(transpose_axes(&x, &[0, 2, 1, 3])?)
        };
        let how = Rope {
            dims: head_dim,
            base: self.config.rope_base,
        };
        let q = rope(&by_head(&layer.q, heads)?, how, position)?;
        let k = rope(&by_head(&layer.k, kv_heads)?, how, position)?;
        let v = by_head(&layer.v, kv_heads)?;

        let end = position + rows;
        let [keys, values] = kept;
        for (all, new) in [(&mut *keys, &k), (&mut *values, &v)] {
            *all = slice_update(all, new, &[0..1, 0..kv_heads, position..end, 0..head_dim])?;
        }
        let seen = [0..1, 0..kv_heads, 0..end, 0..head_dim];
        // The mask in a block: each row sees the keys up to its own.
        let mask = if rows > 1 { Mask::Causal } else { Mask::None };
        let scale = 1.0 / (head_dim as f32).sqrt();
        let (keys, values) = (slice(keys, &seen)?, slice(values, &seen)?);
        let attended = attention(&q, &keys, &values, scale, mask, None)?;
        let attended = transpose_axes(&attended, &[0, 2, 1, 3])?;
        Ok(reshape(&attended, &[rows, hidden])?)
    }
}

/// Keys and values of the positions so far, for each layer. A clone can continue differently.
#[derive(Debug, Clone)]
pub struct Cache {
    layers: Vec<[Array; 2]>,
    capacity: usize,
    length: usize,
}

impl Cache {
    /// An empty cache for `capacity` positions.
    pub fn new(config: &Config, capacity: usize) -> Result<Self> {
        ensure!(
            capacity <= config.context,
            "prompt and answer have {capacity} tokens, but the model was trained for {}: ask for fewer (--tokens)",
            config.context
        );
        let shape = [1, config.kv_heads, capacity, config.head_dim];
        let zeros = vec![f16::ZERO; shape.iter().product()];
        let mut layers = Vec::new();
        for _ in 0..config.layers {
            layers.push([
                Array::from_slice(&zeros, &shape)?,
                Array::from_slice(&zeros, &shape)?,
            ]);
        }
        Ok(Self {
            layers,
            capacity,
            length: 0,
        })
    }

    /// The number of positions in the cache.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Removes the positions from `length` on.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Evaluates the cache.
    pub fn evaluate(&self) -> Result<()> {
        Ok(eval(self.layers.iter().flatten())?)
    }

    fn make_room(&self, rows: usize) -> Result<()> {
        ensure!(
            self.length + rows <= self.capacity,
            "{} positions and {rows} more do not fit into a cache of {}",
            self.length,
            self.capacity
        );
        Ok(())
    }
}
