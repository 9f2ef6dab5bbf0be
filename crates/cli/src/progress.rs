//! One changing line on standard error. indicatif hides it by itself where that is not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The line; it goes away when it is dropped.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// For work whose length is not known.
    pub fn spinning() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(120));
        Self::styled(bar, "{spinner} {prefix} {wide_msg:.dim}")
    }

    /// For `what`, of which [`Progress::count`] says how much is done.
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
        Self(bar)
    }

    /// Shows how much is done.
    pub fn count(&self, done: usize, total: usize) {
        self.0.set_length(total as u64);
        self.0.set_position(done as u64);
    }

    /// Shows what is being done.
    pub fn set(&self, what: &str) {
        self.0.set_prefix(what.to_owned());
        self.0.set_message("");
    }

    /// Shows a detail of it.
    pub fn detail(&self, text: &str) {
        self.0.set_message(text.to_owned());
    }

    /// Prints a line that stays.
    pub fn keep(&self, line: &str) {
        self.0.suspend(|| eprintln!("{line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
