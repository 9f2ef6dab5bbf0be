//! Progress events of long operations.

/// One event of a long operation.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Another run holds the lock, and this run waits; the text describes the holder.
    Waiting(&'a str),
    /// A source is being tried.
    Trying(&'a str),
    /// A line of progress from a program (`git`, `cargo`).
    Output(&'a str),
    /// A source failed; the next one is tried.
    Skipped(&'a str),
    /// Files are compared or written.
    Working(&'a str),
}

/// Receives the events; may be called from any thread.
pub type Progress<'a> = &'a (dyn Fn(Event<'_>) + Sync);

/// Ignores all events.
pub const QUIET: Progress<'static> = &|_| {};
