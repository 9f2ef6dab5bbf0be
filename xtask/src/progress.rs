//! Progress of the engine on the terminal: one changing line, and nothing where stderr is not a terminal.

use cli::Progress;
use patchset::progress::Event;

/// A line that follows the engine's events.
pub(crate) struct Line(Progress);

impl Line {
    /// A new line; it goes away when it is dropped.
    pub(crate) fn new() -> Self {
        Self(Progress::spinning())
    }

    /// Shows one event. Sources that failed are worth a line that stays.
    pub(crate) fn show(&self, event: Event<'_>) {
        match event {
            // It may take long, and is told where no line can change, too.
            Event::Waiting(for_whom) => self.0.keep(for_whom),
            Event::Trying(what) | Event::Working(what) => self.0.set(what),
            Event::Output(line) => self.0.detail(line),
            Event::Skipped(source) => self.0.keep(&format!("skipped {source}")),
            _ => {}
        }
    }
}
