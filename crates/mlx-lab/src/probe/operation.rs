//! What no policy decides: a block of rows against the chain, one operation at a time.

use mlx_overlay::{
    Array, Dtype, Mask, Rope, RowPolicy, Stream, attention, matmul, reshape, rms_norm, rope, slice,
    transpose_axes,
};
use serde::{Deserialize, Serialize};

use super::Options;
use crate::values::{self, Noise};
use crate::{Result, setting};

/// An operation between the quantized products of a transformer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case")]
pub enum Operation {
    /// Root-mean-square normalization.
    RmsNorm {
        /// Values a row.
        dims: usize,
    },
    /// Rotary position embedding.
    Rope {
        /// Heads.
        heads: usize,
        /// Values a head.
        dims: usize,
    },
    /// Scaled dot-product attention over a cache.
    Attention {
        /// Heads of the queries.
        heads: usize,
        /// Heads of keys and values.
        kv_heads: usize,
        /// Values a head.
        dims: usize,
        /// Positions, those of the block included.
        context: usize,
    },
    /// A product with a matrix that is not quantized.
    Dense {
        /// What it is called.
        name: String,
        /// Outputs a row.
        n: usize,
        /// Values a row.
        k: usize,
    },
}

impl Operation {
    /// What is known of it that makes rows depend on one another.
    pub fn mechanism(&self) -> &'static str {
        match self {
            Self::RmsNorm { .. } | Self::Rope { .. } => {
                "each row is computed on its own; please report this with the output"
            }
            Self::Attention { .. } => {
                "attention takes another kernel for more than 8 query rows or where rows times heads a \
                 kv head exceed 32, and with two passes its number of blocks depends on the rows \
                 (scaled_dot_product_attention.cpp); shorter blocks or contexts may stay clear of it"
            }
            Self::Dense { .. } => {
                "one row takes a matrix-vector kernel, several a matrix kernel; no policy covers dense \
                 products: quantize the layer, or compute its rows one by one"
            }
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RmsNorm { dims } => write!(f, "rms_norm over {dims}"),
            Self::Rope { heads, dims } => write!(f, "rope, {heads} heads of {dims}"),
            Self::Attention {
                heads,
                kv_heads,
                dims,
                context,
            } => write!(
                f,
                "attention, {heads} heads over {kv_heads} of {dims}, {context} positions"
            ),
            Self::Dense { name, n, k } => write!(f, "dense product {name} {n}x{k}"),
        }
    }
}

/// What an operation came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationVerdict {
    /// The operation.
    #[serde(flatten)]
    pub operation: Operation,
    /// The fewest rows with which a row's bits differ.
    pub differs_from: Option<usize>,
}

impl OperationVerdict {
    pub(super) fn obstacle(&self) -> Option<String> {
        let rows = self.differs_from?;
        Some(format!(
            "{}: differs from M = {rows} on: {}",
            self.operation,
            self.operation.mechanism()
        ))
    }
}

pub(super) fn verdict(operation: Operation, options: &Options) -> Result<OperationVerdict> {
    let stream = setting::stream(RowPolicy::DEFAULT)?;
    let mut rows = options.rows.clone();
    rows.sort_unstable();
    // As for products: in f32 a difference cannot hide in rounding.
    let mut types = vec![options.dtype];
    types.extend((options.dtype != Dtype::F32).then_some(Dtype::F32));
    for rows in rows {
        for (seed, dtype) in
            (0..options.seeds).flat_map(|seed| types.iter().map(move |t| (seed, *t)))
        {
            if differs(&operation, rows, options, dtype, seed, &stream)? {
                return Ok(OperationVerdict {
                    operation,
                    differs_from: Some(rows),
                });
            }
        }
    }
    Ok(OperationVerdict {
        operation,
        differs_from: None,
    })
}

/// Whether any row of a block has other bits than alone.
fn differs(
    operation: &Operation,
    rows: usize,
    options: &Options,
    dtype: Dtype,
    seed: u64,
    stream: &Stream,
) -> Result<bool> {
    let mut noise = Noise::new(seed);
    // Positions before the block.
    let before = options.context.max(rows) - rows;
    stream.scope(|| {
        let (block, chain): (Array, Vec<Array>) = match *operation {
            Operation::RmsNorm { dims } => {
                let x = noise.array(&[rows, dims], 1.0, dtype)?;
                let weight = noise.array(&[dims], 1.0, dtype)?;
                let chain = rows_of(&x)?
                    .iter()
                    .map(|row| Ok(rms_norm(row, &weight, 1e-5)?))
                    .collect::<Result<_>>()?;
                (rms_norm(&x, &weight, 1e-5)?, chain)
            }
            Operation::Dense { n, k, .. } => {
                let x = noise.array(&[rows, k], 1.0, dtype)?;
                let n = options.outputs.map_or(n, |few| few.min(n));
                let w = noise.array(&[n, k], 1.0, dtype)?;
                let w = transpose_axes(&w, &[1, 0])?;
                let chain = rows_of(&x)?
                    .iter()
                    .map(|row| Ok(matmul(row, &w)?))
                    .collect::<Result<_>>()?;
                (matmul(&x, &w)?, chain)
            }
            Operation::Rope { heads, dims } => {
                let x = heads_of(noise.array(&[rows, heads * dims], 1.0, dtype)?, heads, dims)?;
                let how = Rope { dims, base: 1e4 };
                let chain = (0..rows)
                    .map(|i| Ok(rope(&row_of_heads(&x, i)?, how, before + i)?))
                    .collect::<Result<_>>()?;
                (rope(&x, how, before)?, chain)
            }
            Operation::Attention {
                heads,
                kv_heads,
                dims,
                ..
            } => {
                let q = heads_of(noise.array(&[rows, heads * dims], 1.0, dtype)?, heads, dims)?;
                let cache = [1, kv_heads, before + rows, dims];
                let k = noise.array(&cache, 1.0, dtype)?;
                let v = noise.array(&cache, 1.0, dtype)?;
                let scale = 1.0 / (dims as f32).sqrt();
                let chain = (0..rows)
                    .map(|i| {
                        let seen = [0..1, 0..kv_heads, 0..before + i + 1, 0..dims];
                        let (k, v) = (slice(&k, &seen)?, slice(&v, &seen)?);
                        Ok(attention(
                            &row_of_heads(&q, i)?,
                            &k,
                            &v,
                            scale,
                            Mask::Causal,
                            None,
                        )?)
                    })
                    .collect::<Result<_>>()?;
                (attention(&q, &k, &v, scale, Mask::Causal, None)?, chain)
            }
        };
        for (i, alone) in chain.iter().enumerate() {
            let row = if block.shape().len() == 4 {
                row_of_heads(&block, i)?
            } else {
                slice(&block, &[i..i + 1, 0..block.shape()[1]])?
            };
            if values::bits(&row)? != values::bits(alone)? {
                return Ok(true);
            }
        }
        Ok(false)
    })
}

fn rows_of(x: &Array) -> Result<Vec<Array>> {
    (0..x.shape()[0])
        .map(|i| Ok(slice(x, &[i..i + 1, 0..x.shape()[1]])?))
        .collect()
}

/// `[rows, heads * dims]` as `[1, heads, rows, dims]`.
fn heads_of(x: Array, heads: usize, dims: usize) -> Result<Array> {
    let rows = x.shape()[0];
    let split = reshape(&x, &[1, rows, heads, dims])?;
    Ok(transpose_axes(&split, &[0, 2, 1, 3])?)
}

/// Row `i` of each head.
fn row_of_heads(x: &Array, i: usize) -> Result<Array> {
    let shape = x.shape();
    Ok(slice(x, &[0..1, 0..shape[1], i..i + 1, 0..shape[3]])?)
}
