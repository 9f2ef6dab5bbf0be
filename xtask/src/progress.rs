//! Progress of the engine: one changing line on a terminal, else a line after each silence.

use cli::Progress;
use patchset::progress::Event;

/// A line that follows the engine's events.
pub(crate) struct Line(Progress);

impl Line {
    /// A new line; it disappears when it is dropped.
    pub(crate) fn new() -> Self {
        Self(Progress::spinning())
    }

    /// Shows one event. A source that failed gets a line that stays.
    pub(crate) fn show(&self, event: Event<'_>) {
        match event {
            // It may take long, so it is printed off a terminal too.
            Event::Waiting(for_whom) => self.0.keep(for_whom),
            Event::Trying(what) | Event::Working(what) => self.0.set(what),
            Event::Output(line) => self.0.detail(line),
            Event::Skipped(source) => self.0.keep(&format!("skipped {source}")),
            _ => {}
        }
    }
}
