//! Guesses by look-up: the tokens that followed the last few tokens earlier in the text are guessed again. This costs
//! nothing, and is often right if an answer repeats the question or itself.

/// The longest context to look up.
const LONGEST: usize = 3;

/// `count` tokens that may follow `said`: those after the latest place with the same last three tokens (else two, else
/// one). Empty if there is no such place.
pub fn guess(said: &[u32], count: usize) -> Vec<u32> {
    for length in (1..=LONGEST.min(said.len().saturating_sub(1))).rev() {
        let context = &said[said.len() - length..];
        let earlier = &said[..said.len() - 1];
        if let Some(at) = earlier.windows(length).rposition(|found| found == context) {
            // At the end it continues with its own output: a loop stays a loop.
            return said[at + length..]
                .iter()
                .copied()
                .cycle()
                .take(count)
                .collect();
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::guess;

    #[test]
    fn what_followed_follows_again() {
        assert_eq!(guess(&[1, 2, 3, 9, 1, 2], 2), [3, 9]);
        // The latest of several.
        assert_eq!(guess(&[1, 5, 1, 6, 1], 2), [6, 1]);
        // A longer context takes precedence over a later one.
        assert_eq!(guess(&[1, 2, 3, 7, 2, 4, 1, 2], 1), [3]);
        // A loop.
        assert_eq!(guess(&[4, 8, 8, 8], 3), [8, 8, 8]);
        assert_eq!(guess(&[1, 2, 3, 1, 2, 3, 1], 5), [2, 3, 1, 2, 3]);
        assert_eq!(guess(&[1, 2, 3], 2), [0; 0]);
        assert_eq!(guess(&[1, 1, 1], 0), [0; 0]);
        assert_eq!(guess(&[], 2), [0; 0]);
        assert_eq!(guess(&[4], 2), [0; 0]);
    }
}
