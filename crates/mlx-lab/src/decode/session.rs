//! One model that says token after token.

use mlx_overlay::{Array, Dtype, Stream, argmax, as_type};

use super::transformer::{Cache, Transformer};
use crate::Result;
use crate::values::Noise;

/// Which token follows: the likeliest, after noise that belongs to seed and position alone.
///
/// With noise from Gumbel's distribution this samples from the model's distribution, and two runs
/// with equal logits still take equal tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// 0: the likeliest token, without noise.
    pub temperature: f32,
    /// Of the noise.
    pub seed: u64,
}

impl Sampler {
    /// The tokens that follow rows of logits (`[rows, vocabulary]`), of which the first belongs to
    /// the position `first`.
    ///
    /// # Errors
    /// MLX's.
    pub fn choose(&self, logits: &Array, first: usize) -> Result<Vec<u32>> {
        if self.temperature <= 0.0 {
            return Ok(argmax(logits)?.to_vec()?);
        }
        let vocabulary = logits.shape().last().copied().unwrap_or(1);
        let logits: Vec<f32> = as_type(logits, Dtype::F32)?.to_vec()?;
        let rows = logits.chunks(vocabulary).enumerate();
        Ok(rows.map(|(i, row)| self.sample(row, first + i)).collect())
    }

    fn sample(&self, logits: &[f32], position: usize) -> u32 {
        let mut noise =
            Noise::new(self.seed ^ (position as u64).wrapping_mul(0xd129_0d3b_3b6f_9ae5));
        let mut best = (f32::NEG_INFINITY, 0);
        for (token, logit) in (0..).zip(logits) {
            let gumbel = -(-(noise.unit().max(1e-9)).ln()).ln();
            let score = logit / self.temperature + gumbel;
            if score > best.0 {
                best = (score, token);
            }
        }
        best.1
    }
}

/// A model, a stream and what was said so far.
pub(super) struct Session<'a> {
    model: &'a Transformer,
    stream: &'a Stream,
    pub(super) cache: Cache,
    sampler: Sampler,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        model: &'a Transformer,
        stream: &'a Stream,
        sampler: Sampler,
        capacity: usize,
    ) -> Self {
        Self {
            model,
            stream,
            cache: Cache::new(model, 1, capacity),
            sampler,
        }
    }

    /// The token after each of these.
    pub(super) fn feed(&mut self, tokens: &[u32]) -> Result<Vec<u32>> {
        let first = self.cache.length();
        self.stream.scope(|| {
            let logits = self
                .model
                .forward(tokens, 1, &mut self.cache, &mut |_, _| Ok(()))?;
            self.sampler.choose(&logits, first)
        })
    }

    /// The token after the last of these, one row at a time: a prompt's products would else take
    /// kernels of their own.
    pub(super) fn read(&mut self, tokens: &[u32]) -> Result<u32> {
        let mut next = 0;
        for token in tokens {
            next = self.feed(&[*token])?[0];
        }
        Ok(next)
    }
}
