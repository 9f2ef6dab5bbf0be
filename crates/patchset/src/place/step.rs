//! Points at which tests can kill the process: the file-system calls of [`super::disk`] announce themselves here, and
//! the unit tests choose one. Without tests this compiles to nothing.

#[cfg(test)]
use std::sync::LazyLock;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};

/// The step at which the process dies, counted from 1.
#[cfg(test)]
pub(crate) const VARIABLE: &str = "OVERLAY_TEST_KILL_AT";

/// If set, folders are treated as ones that cannot be exchanged.
#[cfg(test)]
pub(crate) const NO_EXCHANGE: &str = "OVERLAY_TEST_NO_EXCHANGE";

#[cfg(test)]
static KILL_AT: LazyLock<Option<u64>> =
    LazyLock::new(|| std::env::var(VARIABLE).ok()?.parse().ok());
#[cfg(test)]
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Announces a file-system call that changes something.
#[cfg(test)]
pub(crate) fn step() {
    use rustix::process::{Signal, getpid, kill_process};

    let step = TAKEN.fetch_add(1, Ordering::SeqCst) + 1;
    if *KILL_AT == Some(step) {
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

/// Announces a file-system call that changes something.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn step() {}

/// Whether folders may be exchanged; file systems that cannot are rare where tests run.
pub(crate) fn may_exchange() -> bool {
    #[cfg(test)]
    return std::env::var_os(NO_EXCHANGE).is_none();
    #[cfg(not(test))]
    true
}
