//! Decoding token by token, and in blocks that a drafter guesses.

use std::time::{Duration, Instant};

use mlx_overlay::Stream;

use super::drafter::Drafter;
use super::session::{Sampler, Session};
use super::transformer::Transformer;
use crate::Result;

/// A block that was verified: where it began, and its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Positions before it.
    pub start: usize,
    /// The last token that was certain, then the guesses.
    pub tokens: Vec<u32>,
    /// How many of the guesses were right.
    pub accepted: usize,
}

/// What a run said.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The tokens after the prompt.
    pub tokens: Vec<u32>,
    /// The blocks, where it was speculative.
    pub blocks: Vec<Block>,
    /// How long it took after the prompt.
    pub elapsed: Duration,
}

impl Run {
    /// Guesses, and how many of them were right.
    pub fn guesses(&self) -> (usize, usize) {
        let proposed = self.blocks.iter().map(|block| block.tokens.len() - 1).sum();
        (
            proposed,
            self.blocks.iter().map(|block| block.accepted).sum(),
        )
    }
}

/// Decodes token by token.
///
/// # Errors
/// MLX's.
pub fn classic(
    model: &Transformer,
    stream: &Stream,
    sampler: Sampler,
    prompt: &[u32],
    count: usize,
) -> Result<Run> {
    let mut session = Session::new(model, stream, sampler, prompt.len() + count);
    let mut next = session.read(prompt)?;
    let start = Instant::now();
    let mut tokens = Vec::with_capacity(count);
    while tokens.len() < count {
        tokens.push(next);
        next = session.feed(&[next])?[0];
    }
    Ok(Run {
        tokens,
        blocks: Vec::new(),
        elapsed: start.elapsed(),
    })
}

/// Decodes in blocks of up to `width` rows: the token that is certain and `width - 1` guesses.
///
/// # Errors
/// MLX's.
pub fn speculative(
    model: &Transformer,
    stream: &Stream,
    sampler: Sampler,
    drafter: &mut dyn Drafter,
    prompt: &[u32],
    count: usize,
    width: usize,
) -> Result<Run> {
    let mut session = Session::new(model, stream, sampler, prompt.len() + count + width);
    let mut next = session.read(prompt)?;
    let start = Instant::now();
    let mut said = prompt.to_vec();
    let mut blocks = Vec::new();
    while said.len() < prompt.len() + count {
        said.push(next);
        let guesses = drafter.propose(&said, width.saturating_sub(1))?;
        let mut block = vec![next];
        block.extend(&guesses);
        let begin = session.cache.length();
        let choices = session.feed(&block)?;
        let right = guesses.iter().zip(&choices);
        let accepted = right.take_while(|(guess, choice)| guess == choice).count();
        session.cache.truncate(begin + 1 + accepted);
        said.extend(&guesses[..accepted]);
        next = choices[accepted];
        blocks.push(Block {
            start: begin,
            tokens: block,
            accepted,
        });
    }
    let mut tokens = said.split_off(prompt.len());
    tokens.truncate(count);
    Ok(Run {
        tokens,
        blocks,
        elapsed: start.elapsed(),
    })
}
