//! A transformer of the common kind: rotary positions, grouped queries, a gated MLP.

use std::rc::Rc;

use mlx_overlay::{
    Array, Dtype, Mask, Quantization, QuantizedMatrix, Rope, add, as_type, attention, bf16,
    dequantize, matmul, multiply, quantized_matmul, reshape, rms_norm, rope, sigmoid, slice,
    slice_update, take_rows, transpose_axes,
};
use serde::{Deserialize, Serialize};

use crate::values::{Noise, settled};
use crate::{Error, Result};

/// Its dimensions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Tokens that there are.
    pub vocabulary: usize,
    /// Values a row between the layers.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Values a head.
    pub head_dim: usize,
    /// Values a row inside the MLP.
    pub intermediate: usize,
    /// Base of the rotary positions.
    pub rope_base: f32,
    /// Added to the mean square before its root is taken.
    pub eps: f32,
}

/// A matrix that rows are multiplied by.
#[derive(Debug, Clone)]
pub(super) enum Linear {
    Quantized(QuantizedMatrix, Option<Array>),
    /// Already transposed.
    Dense(Array, Option<Array>),
}

impl Linear {
    fn apply(&self, x: &Array) -> Result<Array> {
        let (y, bias) = match self {
            Self::Quantized(matrix, bias) => (quantized_matmul(x, matrix)?, bias),
            Self::Dense(matrix, bias) => (matmul(x, matrix)?, bias),
        };
        match bias {
            Some(bias) => Ok(add(&y, bias)?),
            None => Ok(y),
        }
    }
}

/// Where tokens become rows.
#[derive(Debug, Clone)]
pub(super) enum Embedding {
    Quantized(QuantizedMatrix),
    Dense(Array),
}

/// The weights of one layer.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) input_norm: Array,
    pub(super) q: Linear,
    pub(super) k: Linear,
    pub(super) v: Linear,
    pub(super) q_norm: Option<Array>,
    pub(super) k_norm: Option<Array>,
    pub(super) o: Linear,
    pub(super) post_norm: Array,
    pub(super) gate: Linear,
    pub(super) up: Linear,
    pub(super) down: Linear,
}

/// A model. A clone shares its weights.
#[derive(Debug, Clone)]
pub struct Transformer {
    pub(super) shape: Shape,
    pub(super) embedding: Embedding,
    pub(super) layers: Vec<Rc<Layer>>,
    pub(super) norm: Array,
    pub(super) head: Linear,
}

/// Sees each array of a pass, with a name for it, in the order of computation. A row of the array
/// belongs to a token: rows are the first dimension.
pub type Tap<'a> = dyn FnMut(&str, &Array) -> Result<()> + 'a;

impl Transformer {
    /// Its dimensions.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Random weights of 4 bits or more, and as many layers as gains. Each layer adds to its input about as much as it,
    /// times its gain.
    ///
    /// # Errors
    /// MLX's; those of a quantization that does not divide the dimensions.
    pub fn synthetic(
        shape: Shape,
        quantization: Quantization,
        gains: &[f32],
        seed: u64,
    ) -> Result<Self> {
        let mut noise = Noise::new(seed);
        let dtype = Dtype::Bf16;
        let mut linear = |n: usize, k: usize, gain: f32| {
            let matrix = noise.matrix([n, k], quantization, dtype, gain)?;
            Ok::<_, Error>(Linear::Quantized(matrix, None))
        };
        let q_width = shape.heads * shape.head_dim;
        let kv_width = shape.kv_heads * shape.head_dim;
        let ones = |count: usize| -> Result<Array> {
            Ok(Array::from_slice(&vec![bf16::ONE; count], &[count])?)
        };
        let mut layers = Vec::new();
        for &gain in gains {
            layers.push(Rc::new(Layer {
                input_norm: ones(shape.hidden)?,
                // Sharp attention: an average over all positions would say nothing.
                q: linear(q_width, shape.hidden, 2.0)?,
                k: linear(kv_width, shape.hidden, 2.0)?,
                v: linear(kv_width, shape.hidden, 1.0)?,
                q_norm: None,
                k_norm: None,
                o: linear(shape.hidden, q_width, 2.0 * gain)?,
                post_norm: ones(shape.hidden)?,
                gate: linear(shape.intermediate, shape.hidden, 1.0)?,
                up: linear(shape.intermediate, shape.hidden, 1.0)?,
                down: linear(shape.hidden, shape.intermediate, 2.0 * gain)?,
            }));
        }
        let head = noise.matrix([shape.vocabulary, shape.hidden], quantization, dtype, 1.0)?;
        let head = Linear::Quantized(twins(&head, &mut noise)?, None);
        let embedding = noise.array(&[shape.vocabulary, shape.hidden], 1.0, dtype)?;
        Ok(Self {
            embedding: Embedding::Dense(embedding),
            layers,
            norm: ones(shape.hidden)?,
            head,
            shape: Shape {
                layers: gains.len(),
                ..shape
            },
        })
    }

    /// Its first layers with its head: a cheap guess of what it will say.
    #[must_use]
    pub fn first_layers(&self, count: usize) -> Self {
        let mut first = self.clone();
        first.layers.truncate(count);
        first.shape.layers = first.layers.len();
        first
    }

    /// The logits (`[tokens, vocabulary]`) of the tokens that follow what the cache holds. With a
    /// batch, the tokens of each sequence lie together.
    ///
    /// # Errors
    /// MLX's; [`Error::Invalid`] for tokens that do not fill the batch, or more than the cache holds.
    pub fn forward(
        &self,
        tokens: &[u32],
        batch: usize,
        cache: &mut Cache,
        tap: &mut Tap<'_>,
    ) -> Result<Array> {
        let rows = cache.room(tokens.len(), batch)?;
        let mut x = match &self.embedding {
            Embedding::Quantized(matrix) => {
                as_type(&dequantize(&matrix.take_rows(tokens)?)?, Dtype::Bf16)?
            }
            Embedding::Dense(matrix) => take_rows(matrix, tokens)?,
        };
        tap("embedding", &x)?;
        for (i, layer) in self.layers.iter().enumerate() {
            let mut tap = |name: &str, array: &Array| tap(&format!("layer {i}, {name}"), array);
            let h = rms_norm(&x, &layer.input_norm, self.shape.eps)?;
            tap("input norm", &h)?;
            let attended = self.attend(layer, i, &h, [batch, rows], cache, &mut tap)?;
            x = add(&x, &attended)?;
            let h = rms_norm(&x, &layer.post_norm, self.shape.eps)?;
            tap("second norm", &h)?;
            let gate = layer.gate.apply(&h)?;
            tap("gate product", &gate)?;
            let up = layer.up.apply(&h)?;
            tap("up product", &up)?;
            let inner = multiply(&multiply(&gate, &sigmoid(&gate)?)?, &up)?;
            tap("activation", &inner)?;
            let down = layer.down.apply(&inner)?;
            tap("down product", &down)?;
            x = add(&x, &down)?;
        }
        cache.length += rows;
        let last = rms_norm(&x, &self.norm, self.shape.eps)?;
        tap("last norm", &last)?;
        let logits = self.head.apply(&last)?;
        tap("head product", &logits)?;
        Ok(logits)
    }

    fn attend(
        &self,
        layer: &Layer,
        index: usize,
        h: &Array,
        [batch, rows]: [usize; 2],
        cache: &mut Cache,
        tap: &mut Tap<'_>,
    ) -> Result<Array> {
        let Shape {
            heads,
            kv_heads,
            head_dim,
            ..
        } = self.shape;
        let how = Rope {
            dims: head_dim,
            base: self.shape.rope_base,
        };
        let offset = cache.length;
        let split = |x: &Array, heads: usize, norm: &Option<Array>| -> Result<Array> {
            let mut x = reshape(x, &[batch, rows, heads, head_dim])?;
            if let Some(norm) = norm {
                x = rms_norm(&x, norm, self.shape.eps)?;
            }
            Ok(transpose_axes(&x, &[0, 2, 1, 3])?)
        };
        let joined = |x: &Array, heads: usize| -> Result<Array> {
            let x = transpose_axes(x, &[0, 2, 1, 3])?;
            Ok(reshape(&x, &[batch * rows, heads * head_dim])?)
        };
        let q = layer.q.apply(h)?;
        tap("query product", &q)?;
        let k = layer.k.apply(h)?;
        tap("key product", &k)?;
        let v = layer.v.apply(h)?;
        tap("value product", &v)?;
        let q = rope(&split(&q, heads, &layer.q_norm)?, how, offset)?;
        tap("query rotation", &joined(&q, heads)?)?;
        let k = rope(&split(&k, kv_heads, &layer.k_norm)?, how, offset)?;
        tap("key rotation", &joined(&k, kv_heads)?)?;
        let v = split(&v, kv_heads, &None)?;
        let (k, v) = cache.append(index, &k, &v)?;
        let scale = 1.0 / (head_dim as f32).sqrt();
        let mask = if rows > 1 { Mask::Causal } else { Mask::None };
        let attended = joined(&attention(&q, &k, &v, scale, mask, None)?, heads)?;
        tap("attention", &attended)?;
        let out = layer.o.apply(&attended)?;
        tap("output product", &out)?;
        Ok(out)
    }
}

/// A head whose tokens come in pairs that differ in one weight: as among the words of a language,
/// the choice between the likeliest is often close, and a difference in few bits shows.
fn twins(head: &QuantizedMatrix, noise: &mut Noise) -> Result<QuantizedMatrix> {
    let words_a_row = head.packed().shape()[1];
    let mut words: Vec<u32> = head.packed().to_vec()?;
    let count = u32::try_from(words_a_row).unwrap_or(u32::MAX);
    for pair in words.chunks_exact_mut(2 * words_a_row) {
        let (row, twin) = pair.split_at_mut(words_a_row);
        twin.copy_from_slice(row);
        twin[noise.below(count) as usize] ^= 0xf << (4 * noise.below(8));
    }
    let rows: Vec<u32> = (0..).take(head.rows()).collect();
    let even: Vec<u32> = rows.iter().map(|row| row & !1).collect();
    let paired = head.take_rows(&even)?;
    let packed = Array::from_slice(&words, head.packed().shape())?;
    Ok(QuantizedMatrix::from_parts(
        packed,
        settled(paired.scales())?,
        paired.biases().map(settled).transpose()?,
        head.quantization(),
    )?)
}

/// Keys and values of the positions so far.
#[derive(Debug)]
pub struct Cache {
    layers: Vec<Option<(Array, Array)>>,
    batch: usize,
    capacity: usize,
    /// Positions that it holds.
    length: usize,
}

impl Cache {
    /// An empty one, for so many positions of a batch of sequences.
    pub fn new(model: &Transformer, batch: usize, capacity: usize) -> Self {
        Self {
            layers: vec![None; model.layers.len()],
            batch,
            capacity,
            length: 0,
        }
    }

    /// Positions that it holds.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Forgets the positions from here on.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    fn room(&self, tokens: usize, batch: usize) -> Result<usize> {
        let rows = tokens / batch.max(1);
        if batch != self.batch || rows == 0 || rows * batch != tokens {
            return Err(Error::Invalid(format!(
                "{tokens} tokens for a batch of {batch}, in a cache of {}",
                self.batch
            )));
        }
        if self.length + rows > self.capacity {
            return Err(Error::Invalid(format!(
                "{} positions and {rows} more do not fit a cache of {}",
                self.length, self.capacity
            )));
        }
        Ok(rows)
    }

    /// Adds the rows of a layer, and gives all that there is.
    fn append(&mut self, layer: usize, k: &Array, v: &Array) -> Result<(Array, Array)> {
        let &[batch, heads, rows, dims] = k.shape() else {
            return Err(Error::Invalid("keys have four dimensions".to_owned()));
        };
        // Taken out, so that MLX may write where the old one lies.
        let (old_k, old_v) = match self.layers[layer].take() {
            Some(pair) => pair,
            None => {
                let shape = [batch, heads, self.capacity, dims];
                let zeros = vec![bf16::ZERO; shape.iter().product()];
                let empty = || as_type(&Array::from_slice(&zeros, &shape)?, k.dtype());
                (empty()?, empty()?)
            }
        };
        let end = self.length + rows;
        let place = [0..batch, 0..heads, self.length..end, 0..dims];
        let seen = [0..batch, 0..heads, 0..end, 0..dims];
        let new_k = slice_update(&old_k, k, &place)?;
        let new_v = slice_update(&old_v, v, &place)?;
        let views = (slice(&new_k, &seen)?, slice(&new_v, &seen)?);
        self.layers[layer] = Some((new_k, new_v));
        Ok(views)
    }
}
