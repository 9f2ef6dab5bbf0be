//! Progress of the engine on the terminal: one changing line, and nothing where stderr is not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use patchset::progress::Event;

/// A line that follows the engine's events.
pub(crate) struct Line {
    bar: ProgressBar,
}

impl Line {
    /// A new line; it goes away when it is dropped.
    pub(crate) fn new() -> Self {
        // indicatif hides the bar by itself where stderr is not a terminal.
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {wide_msg:.dim}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar }
    }

    /// Shows one event. Sources that did not do are worth a line that stays.
    pub(crate) fn show(&self, event: Event<'_>) {
        match event {
            Event::Waiting => {
                self.bar.set_prefix("waiting for another run to finish");
            }
            Event::Trying(source) => {
                self.bar.set_prefix(source.to_owned());
                self.bar.set_message("");
            }
            Event::Output(line) => self.bar.set_message(line.to_owned()),
            Event::Skipped(source) => self.bar.suspend(|| eprintln!("skipped {source}")),
            Event::Working(what) => {
                self.bar.set_prefix(what.to_owned());
                self.bar.set_message("");
            }
            _ => {}
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
