//! What long work tells its caller while it runs.

/// One step of long work.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Others hold the lock, and this run waits for it: who and since when, in words.
    Waiting(&'a str),
    /// This source is tried now.
    Trying(&'a str),
    /// A line of progress from a program (`git`, `cargo`).
    Output(&'a str),
    /// A source did not do; the next one is tried.
    Skipped(&'a str),
    /// Files are compared or written.
    Working(&'a str),
}

/// Receives the events; call it from any thread.
pub type Progress<'a> = &'a (dyn Fn(Event<'_>) + Sync);

/// Receives nothing.
pub const QUIET: Progress<'static> = &|_| {};
