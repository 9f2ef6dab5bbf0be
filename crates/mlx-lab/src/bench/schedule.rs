//! The order in which arms are measured, and statistics of the times.

use serde::{Deserialize, Serialize};

use crate::Result;

/// Measures arms in rounds of B A A B: each round runs them forwards and backwards, so that drift (heat, other work)
/// affects all of them equally. Returns the times of each arm.
///
/// One run of each arm before the first round is not counted: it makes pipelines and fills caches.
///
/// # Errors
/// The error of the first arm that fails.
pub fn interleave(
    arms: usize,
    rounds: usize,
    mut run: impl FnMut(usize) -> Result<f64>,
) -> Result<Vec<Vec<f64>>> {
    let mut times = vec![Vec::with_capacity(2 * rounds); arms];
    for arm in 0..arms {
        run(arm)?;
    }
    for _ in 0..rounds {
        for arm in (0..arms).rev().chain(0..arms) {
            times[arm].push(run(arm)?);
        }
    }
    Ok(times)
}

/// Times of one arm: the median, and the quartiles as spread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Half of the times are at most this.
    pub median: f64,
    /// A quarter of the times are at most this.
    pub low: f64,
    /// Three quarters of the times are at most this.
    pub high: f64,
    /// Number of times.
    pub samples: usize,
}

impl Spread {
    /// The spread of times in seconds, each divided by `parts`. `None` if there are no times.
    pub fn of(times: &[f64], parts: usize) -> Option<Self> {
        let mut times: Vec<f64> = times.iter().map(|time| time / parts as f64).collect();
        times.sort_by(f64::total_cmp);
        let quantile = |part: f64| {
            let at = part * (times.len().checked_sub(1)?) as f64;
            let (below, above) = (times[at.floor() as usize], times[at.ceil() as usize]);
            Some(below + (above - below) * at.fract())
        };
        Some(Self {
            median: quantile(0.5)?,
            low: quantile(0.25)?,
            high: quantile(0.75)?,
            samples: times.len(),
        })
    }

    /// Whether it is faster than another by more than both spreads.
    pub fn is_below(&self, other: &Self) -> bool {
        self.high < other.low
    }
}

/// Runs of one arm over minutes. A kernel can win each short measurement and still stall in the long run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sustained {
    /// Requested seconds.
    pub asked: f64,
    /// Number of runs.
    pub runs: usize,
    /// Median of the first tenth of the runs, in seconds per run.
    pub first: f64,
    /// Median of the last tenth.
    pub last: f64,
    /// The slowest run.
    pub slowest: f64,
    /// The time at which it began.
    pub slowest_at: f64,
}

/// Runs one arm until its times add up to the given seconds.
///
/// # Errors
/// The arm's errors.
pub fn sustain(seconds: f64, mut run: impl FnMut() -> Result<f64>) -> Result<Option<Sustained>> {
    let mut times = Vec::new();
    let mut elapsed = 0.0;
    let (mut slowest, mut slowest_at) = (0.0, 0.0);
    while elapsed < seconds {
        let time = run()?;
        if time > slowest {
            (slowest, slowest_at) = (time, elapsed);
        }
        times.push(time);
        // A stopped clock must not block us forever.
        elapsed += time.max(1e-7);
    }
    let tenth = times.len().div_ceil(10);
    let median = |times: &[f64]| Spread::of(times, 1).map(|spread| spread.median);
    let ends = (
        median(&times[..tenth]),
        median(&times[times.len() - tenth..]),
    );
    let (Some(first), Some(last)) = ends else {
        return Ok(None);
    };
    Ok(Some(Sustained {
        asked: seconds,
        runs: times.len(),
        first,
        last,
        slowest,
        slowest_at,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn arms_take_turns_forwards_and_backwards() {
        let mut order = Vec::new();
        let times = interleave(2, 2, |arm| {
            order.push(["A", "B"][arm]);
            Ok(order.len() as f64)
        })
        .unwrap();
        assert_eq!(order.concat(), "AB BAAB BAAB".replace(' ', ""));
        assert_eq!(times, [[4.0, 5.0, 8.0, 9.0], [3.0, 6.0, 7.0, 10.0]]);
        // A steady drift adds the same to both.
        let sum = |times: &[f64]| times.iter().sum::<f64>();
        assert_eq!(sum(&times[0]), sum(&times[1]));
    }

    #[test]
    fn the_first_failure_ends_it() {
        let mut left = 3;
        let outcome = interleave(2, 2, |_| {
            left -= 1;
            if left == 0 {
                Err(Error::Invalid("broken".to_owned()))
            } else {
                Ok(1.0)
            }
        });
        assert_eq!(outcome.unwrap_err().to_string(), "broken");
    }

    #[test]
    fn the_spread_is_that_of_the_quartiles() {
        let spread = Spread::of(&[4.0, 2.0, 8.0, 6.0, 100.0], 2).unwrap();
        assert_eq!((spread.low, spread.median, spread.high), (2.0, 3.0, 4.0));
        assert_eq!(Spread::of(&[], 1), None);
        let slower = Spread::of(&[5.0, 5.0], 1).unwrap();
        assert!(spread.is_below(&slower) && !slower.is_below(&spread));
        let overlapping = Spread::of(&[3.0, 6.0], 1).unwrap();
        assert!(!spread.is_below(&overlapping));
    }

    #[test]
    fn a_stall_shows() {
        let mut runs = 0;
        let sustained = sustain(120.0, || {
            runs += 1;
            Ok(if runs == 50 { 30.0 } else { 0.5 })
        })
        .unwrap()
        .unwrap();
        assert_eq!(sustained.runs, 181);
        assert_eq!((sustained.first, sustained.last), (0.5, 0.5));
        assert_eq!((sustained.slowest, sustained.slowest_at), (30.0, 24.5));
        assert_eq!(sustain(0.0, || Ok(1.0)).unwrap(), None);
    }
}
