//! One changing line on standard error. If that is not a terminal, a line after each silence instead.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Silence after which a line reports the progress, if there is no terminal.
const SILENCE: Duration = Duration::from_secs(15);

/// The line; it disappears when it is dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// Off a terminal, where indicatif shows nothing.
    pulse: Option<Pulse>,
}

impl Progress {
    /// For work of unknown length.
    pub fn spinning() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(120));
        Self::styled(bar, "{spinner} {prefix} {wide_msg:.dim}")
    }

    /// For `what`; [`Progress::count`] sets how much is done.
    pub fn counted(what: impl Into<String>) -> Self {
        let bar = ProgressBar::no_length();
        bar.set_prefix(what.into());
        // The clock goes on while nothing is finished.
        bar.enable_steady_tick(Duration::from_secs(1));
        Self::styled(
            bar,
            "{elapsed:>4} {prefix} [{bar:30}] {pos}/{len}, about {eta} left {wide_msg:.dim}",
        )
    }

    fn styled(bar: ProgressBar, template: &str) -> Self {
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let pulse = (!std::io::stderr().is_terminal()).then(|| {
            let bar = bar.clone();
            Pulse::new(SILENCE, move |time| eprintln!("{}", report(&bar, time)))
        });
        Self { bar, pulse }
    }

    /// Sets how much is done.
    pub fn count(&self, done: usize, total: usize) {
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
    }

    /// Sets the current activity.
    pub fn set(&self, what: &str) {
        self.bar.set_prefix(what.to_owned());
        self.bar.set_message("");
    }

    /// Sets a detail of the activity.
    pub fn detail(&self, text: &str) {
        self.bar.set_message(text.to_owned());
    }

    /// Prints a line that stays.
    pub fn keep(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
        if let Some(pulse) = &self.pulse {
            pulse.heard();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// What is done after so much time, in a line.
fn report(bar: &ProgressBar, time: Duration) -> String {
    let mut line = format!("... {} s", time.as_secs());
    let prefix = bar.prefix();
    if !prefix.is_empty() {
        line += &format!(", {prefix}");
    }
    if let Some(total) = bar.length() {
        line += &format!(" {}/{total}", bar.position());
    }
    let detail = bar.message();
    if !detail.is_empty() {
        line += &format!(": {detail}");
    }
    line
}

/// Speaks after each silence. Ends when it is dropped.
#[derive(Debug)]
struct Pulse {
    heard: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    fn new(silence: Duration, say: impl Fn(Duration) + Send + 'static) -> Self {
        let (heard, hears) = channel();
        let begin = Instant::now();
        let thread = std::thread::spawn(move || {
            loop {
                match hears.recv_timeout(silence) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Timeout) => say(begin.elapsed()),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Self {
            heard: Some(heard),
            thread: Some(thread),
        }
    }

    /// Something else was printed.
    fn heard(&self) {
        if let Some(heard) = &self.heard {
            // The thread lives as long as this.
            let _ = heard.send(());
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.heard = None;
        if let Some(thread) = self.thread.take() {
            // It only prints.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn silence_is_broken_and_only_silence() {
        let said = Arc::new(Mutex::new(0));
        let count = said.clone();
        let pulse = Pulse::new(Duration::from_millis(400), move |_| {
            *count.lock().unwrap() += 1;
        });
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(60));
            pulse.heard();
        }
        assert_eq!(*said.lock().unwrap(), 0);
        std::thread::sleep(Duration::from_secs(1));
        drop(pulse);
        assert!((1..=3).contains(&*said.lock().unwrap()));
    }

    #[test]
    fn a_line_has_what_the_bar_would_show() {
        let bar = ProgressBar::hidden();
        bar.set_prefix("MLX");
        assert_eq!(report(&bar, Duration::from_secs(15)), "... 15 s, MLX");
        bar.set_length(870);
        bar.set_position(312);
        bar.set_message("ops.cpp.o");
        assert_eq!(
            report(&bar, Duration::from_secs(30)),
            "... 30 s, MLX 312/870: ops.cpp.o"
        );
        assert_eq!(
            report(&ProgressBar::new_spinner(), Duration::ZERO),
            "... 0 s"
        );
    }
}
