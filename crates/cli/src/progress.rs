//! One changing line on standard error. If that is not a terminal, a line after each silence instead.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Silence after which a line reports the progress, if there is no terminal.
const SILENCE: Duration = Duration::from_secs(15);

/// The same for a step that has just begun: a short one prints nothing.
const SOON: Duration = Duration::from_secs(2);

/// How often a terminal shows what is in work.
const TICK: Duration = Duration::from_secs(1);

/// The line; it disappears when it is dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// Off a terminal, where indicatif shows nothing, and for [`Progress::watching`].
    pulse: Option<Pulse>,
}

impl Progress {
    /// For work of unknown length.
    pub fn spinning() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(120));
        Self::styled(bar, "{spinner} {prefix} {wide_msg:.dim}", None)
    }

    /// For `what`; [`Progress::count`] sets how much is done.
    pub fn counted(what: impl Into<String>) -> Self {
        Self::with_count(what.into(), None)
    }

    /// The same for work that other processes do: `now` is called each time the progress is shown, and returns the
    /// detail to show, if it knows one.
    pub fn watching(
        what: impl Into<String>,
        now: impl Fn() -> Option<String> + Send + 'static,
    ) -> Self {
        Self::with_count(what.into(), Some(Box::new(now)))
    }

    fn with_count(what: String, now: Option<Now>) -> Self {
        let bar = ProgressBar::no_length();
        bar.set_prefix(what);
        // The clock goes on while nothing is finished.
        bar.enable_steady_tick(TICK);
        let template =
            "{elapsed:>4} {prefix} [{bar:30}] {pos}/{len}, about {eta} left {wide_msg:.dim}";
        Self::styled(bar, template, now)
    }

    fn styled(bar: ProgressBar, template: &str, now: Option<Now>) -> Self {
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let terminal = std::io::stderr().is_terminal();
        let pulse = (!terminal || now.is_some()).then(|| {
            let bar = bar.clone();
            Pulse::new(if terminal { TICK } else { SILENCE }, move || {
                if let Some(detail) = now.as_ref().and_then(|now| now()) {
                    bar.set_message(detail);
                }
                if !terminal {
                    eprintln!("{}", report(&bar, bar.elapsed()));
                }
            })
        });
        Self { bar, pulse }
    }

    /// Begins a step of the work. Without a terminal a line reports it, unless it ends at once.
    pub fn step(&self, what: impl Into<String>) {
        self.bar.set_prefix(what.into());
        self.bar.set_message("");
        self.next_after(SOON);
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
        self.next_after(SILENCE);
    }

    fn next_after(&self, silence: Duration) {
        if let Some(pulse) = &self.pulse {
            pulse.next_after(silence);
        }
    }
}

/// Returns what is in work at that moment.
type Now = Box<dyn Fn() -> Option<String> + Send>;

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

/// Reports after each silence. Ends when it is dropped.
#[derive(Debug)]
struct Pulse {
    next: Option<Sender<Duration>>,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    fn new(silence: Duration, report: impl Fn() + Send + 'static) -> Self {
        let (next, set) = channel();
        let thread = std::thread::spawn(move || {
            let mut wait = silence;
            loop {
                match set.recv_timeout(wait) {
                    Ok(next) => wait = next,
                    Err(RecvTimeoutError::Timeout) => {
                        report();
                        wait = silence;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Self {
            next: Some(next),
            thread: Some(thread),
        }
    }

    /// Lets the next report wait for that long.
    fn next_after(&self, silence: Duration) {
        if let Some(next) = &self.next {
            // The thread lives as long as this.
            let _ = next.send(silence);
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.next = None;
        if let Some(thread) = self.thread.take() {
            // It only prints.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::mpsc::Receiver;
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn counted(silence: Duration) -> (Pulse, Receiver<()>) {
        let (sender, reports) = channel();
        let pulse = Pulse::new(silence, move || sender.send(()).unwrap());
        (pulse, reports)
    }

    /// Waits for events and bounds counts by the time that passed, so that a busy machine makes no difference.
    #[test]
    fn silence_is_broken_and_only_silence() {
        let silence = Duration::from_secs(1);
        let (pulse, reports) = counted(silence);
        pulse.next_after(LONG);
        let early = reports.recv_timeout(silence.mul_f32(1.5));
        assert_eq!(early, Err(RecvTimeoutError::Timeout));

        let start = Instant::now();
        pulse.next_after(silence);
        for _ in 0..2 {
            reports.recv_timeout(LONG).unwrap();
        }
        drop(pulse);
        let count = 2 + u32::try_from(reports.iter().count()).unwrap();
        assert!(silence * count <= start.elapsed(), "{count}");
    }

    #[test]
    fn a_step_is_reported_soon() {
        let (pulse, reports) = counted(LONG);
        pulse.next_after(Duration::from_millis(50));
        reports.recv_timeout(LONG / 2).unwrap();
        drop(pulse);
        assert_eq!(reports.iter().count(), 0);
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
