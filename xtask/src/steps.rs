//! The steps of a long command, numbered and timed.

use std::time::{Duration, Instant};

use anyhow::Result;
use cli::println;

/// A counter of steps.
pub(crate) struct Steps {
    total: usize,
    done: usize,
    begin: Instant,
}

impl Steps {
    pub(crate) fn new(total: usize) -> Self {
        Self {
            total,
            done: 0,
            begin: Instant::now(),
        }
    }

    /// Prints the step's name, does it, and prints how long it took.
    pub(crate) fn step<T>(&mut self, what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.done += 1;
        println!("[{}/{}] {what}", self.done, self.total);
        let begin = Instant::now();
        let result = work()?;
        println!("      done in {}", readable(begin.elapsed()));
        Ok(result)
    }

    /// The time since the first step.
    pub(crate) fn elapsed(&self) -> String {
        readable(self.begin.elapsed())
    }
}

fn readable(time: Duration) -> String {
    match time.as_secs() {
        short @ 0..120 => format!("{short} s"),
        long => format!("{} min {} s", long / 60, long % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_readable() {
        assert_eq!(readable(Duration::from_millis(900)), "0 s");
        assert_eq!(readable(Duration::from_secs(119)), "119 s");
        assert_eq!(readable(Duration::from_secs(425)), "7 min 5 s");
    }
}
