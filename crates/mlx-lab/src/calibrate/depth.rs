//! How many tokens to guess before verifying them.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The costs of a cycle of guessing and verifying, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// A pass of the model over 1, 2 and so on rows: products, attention, and everything else.
    pub verify: Vec<f64>,
    /// One guess.
    pub guess: f64,
    /// The probability that a guess is right if those before it were.
    pub acceptance: f64,
}

/// The best depth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Depth {
    /// Guesses per cycle; 0 means do not guess.
    pub guesses: usize,
    /// Expected tokens per cycle.
    pub tokens: f64,
    /// Tokens per second.
    pub tokens_per_s: f64,
    /// Speedup compared with no guesses.
    pub speedup: f64,
}

/// The depth with the most tokens per second. A cycle of d guesses costs d guesses and a pass over d + 1 rows, and
/// yields 1 + a + .. + a^d tokens (Leviathan, Kalman and Matias, "Fast inference from transformers via speculative
/// decoding", 2023).
///
/// # Errors
/// [`Error::Invalid`] if a cost is not a positive number, or the acceptance is not a probability.
pub fn best_depth(costs: &Costs) -> Result<Depth> {
    let positive = |cost: &f64| cost.is_finite() && *cost > 0.0;
    if costs.verify.is_empty() || !costs.verify.iter().all(positive) {
        return Err(Error::Invalid(
            "the time to verify must be positive for 1 row and each number above".to_owned(),
        ));
    }
    if !costs.guess.is_finite() || costs.guess < 0.0 || !(0.0..=1.0).contains(&costs.acceptance) {
        return Err(Error::Invalid(
            "the time of a guess must not be negative, and its acceptance must be from 0 to 1"
                .to_owned(),
        ));
    }
    let alone = costs.verify[0];
    let mut best = Depth {
        guesses: 0,
        tokens: 1.0,
        tokens_per_s: 1.0 / alone,
        speedup: 1.0,
    };
    let (mut tokens, mut chance) = (1.0, 1.0);
    for (guesses, verify) in costs.verify.iter().enumerate().skip(1) {
        chance *= costs.acceptance;
        tokens += chance;
        let seconds = verify + guesses as f64 * costs.guess;
        let tokens_per_s = tokens / seconds;
        if tokens_per_s > best.tokens_per_s {
            best = Depth {
                guesses,
                tokens,
                tokens_per_s,
                speedup: tokens_per_s * alone,
            };
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(verify: &[f64], guess: f64, acceptance: f64) -> Depth {
        best_depth(&Costs {
            verify: verify.to_vec(),
            guess,
            acceptance,
        })
        .unwrap()
    }

    #[test]
    fn it_goes_as_far_as_verifying_is_free() {
        // Extra rows cost nothing: as deep as measured.
        assert_eq!(depth(&[1.0; 8], 0.0, 0.5).guesses, 7);
        // Extra rows cost as much as passes: no guess pays.
        let linear: Vec<f64> = (1..=8).map(f64::from).collect();
        assert_eq!(depth(&linear, 0.0, 0.9).guesses, 0);
        assert_eq!(depth(&[1.0; 8], 0.0, 0.0).guesses, 0);
        // A step in the cost is the limit.
        let steps = [1.0, 1.1, 1.2, 1.3, 3.0, 3.0, 3.0, 3.0];
        let best = depth(&steps, 0.05, 0.7);
        assert_eq!(best.guesses, 3);
        let tokens = 1.0 + 0.7 + 0.49 + 0.343;
        assert!((best.tokens - tokens).abs() < 1e-12);
        assert!((best.speedup - tokens / 1.45).abs() < 1e-12);
        // With an expensive guess the limit is lower.
        assert!(depth(&steps, 0.4, 0.7).guesses < 3);
    }

    #[test]
    fn nonsense_is_refused() {
        for (verify, guess, acceptance) in [
            (vec![], 0.0, 0.5),
            (vec![1.0, f64::NAN], 0.0, 0.5),
            (vec![0.0], 0.0, 0.5),
            (vec![1.0], -1.0, 0.5),
            (vec![1.0], 0.0, 1.5),
        ] {
            let costs = Costs {
                verify,
                guess,
                acceptance,
            };
            assert!(best_depth(&costs).is_err(), "{costs:?}");
        }
    }
}
