//! Who guesses.

use mlx_overlay::Stream;

use super::session::{Sampler, Session};
use super::transformer::Transformer;
use crate::Result;

/// Guesses what comes next.
pub trait Drafter {
    /// At most `count` tokens that may follow what was said.
    ///
    /// # Errors
    /// MLX's.
    fn propose(&mut self, said: &[u32], count: usize) -> Result<Vec<u32>>;
}

/// Another model, with the same noise: the first layers of the one that decides, for example.
pub struct Smaller<'a> {
    session: Session<'a>,
    /// What its cache holds.
    seen: Vec<u32>,
}

impl<'a> Smaller<'a> {
    /// A model with a cache for so many positions. Its products need not be exact: give it a stream
    /// under the default policy.
    pub fn new(
        model: &'a Transformer,
        stream: &'a Stream,
        sampler: Sampler,
        capacity: usize,
    ) -> Self {
        Self {
            session: Session::new(model, stream, sampler, capacity),
            seen: Vec::new(),
        }
    }
}

impl Drafter for Smaller<'_> {
    fn propose(&mut self, said: &[u32], count: usize) -> Result<Vec<u32>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let same = self.seen.iter().zip(said);
        let same = same.take_while(|(a, b)| a == b).count();
        // The last token is fed again if need be: its successor is what is asked for.
        let same = same.min(said.len() - 1);
        self.session.cache.truncate(same);
        self.seen.truncate(same);
        let mut guesses = Vec::new();
        let mut next = self.session.read(&said[same..])?;
        self.seen.extend(&said[same..]);
        loop {
            guesses.push(next);
            if guesses.len() == count {
                return Ok(guesses);
            }
            self.seen.push(next);
            next = self.session.feed(&[next])?[0];
        }
    }
}

/// Guesses that what followed the last few tokens before follows them again.
pub struct Lookup;

/// The longest context that is looked for.
const LONGEST: usize = 3;

impl Drafter for Lookup {
    fn propose(&mut self, said: &[u32], count: usize) -> Result<Vec<u32>> {
        for length in (1..=LONGEST.min(said.len().saturating_sub(1))).rev() {
            let context = &said[said.len() - length..];
            let earlier = &said[..said.len() - 1];
            let found = earlier
                .windows(length)
                .rposition(|window| window == context);
            if let Some(at) = found {
                let rest = &said[at + length..];
                return Ok(rest[..count.min(rest.len())].to_vec());
            }
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_follows_again() {
        let guess = |said: &[u32], count| Lookup.propose(said, count).unwrap();
        assert_eq!(guess(&[1, 2, 3, 9, 1, 2], 2), [3, 9]);
        // The latest of equals, and no more than there is.
        assert_eq!(guess(&[1, 5, 1, 6, 1], 4), [6, 1]);
        // A longer context wins over a later one.
        assert_eq!(guess(&[1, 2, 3, 7, 2, 4, 1, 2], 1), [3]);
        assert_eq!(guess(&[1, 2, 3], 2), [0; 0]);
        assert_eq!(guess(&[], 2), [0; 0]);
        assert_eq!(guess(&[4], 2), [0; 0]);
    }
}
