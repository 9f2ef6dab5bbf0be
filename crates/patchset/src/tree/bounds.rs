//! Limits on what is read into memory from any source. A source of MLX is far below each of them.

use crate::error::{Error, Result};

/// The limits for a source, or for one of our files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Files, links and folders; also members of a compressed stream.
    pub(crate) entries: u64,
    /// Total unpacked bytes of all files. Also the limit for a packed archive.
    pub(crate) bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            entries: 1 << 16,
            bytes: 256 << 20,
        }
    }
}

impl Bounds {
    /// A counter for `origin`.
    pub(crate) fn tally(self, origin: &str) -> Tally<'_> {
        Tally {
            origin,
            bounds: self,
            entries: 0,
            bytes: 0,
        }
    }
}

/// A running count.
pub(crate) struct Tally<'a> {
    origin: &'a str,
    bounds: Bounds,
    entries: u64,
    bytes: u64,
}

impl Tally<'_> {
    /// The source whose entries are counted.
    pub(crate) fn origin(&self) -> &str {
        self.origin
    }

    /// Counts one entry.
    pub(crate) fn entry(&mut self) -> Result<()> {
        self.entries += 1;
        self.within(self.entries, self.bounds.entries, "entries")
    }

    /// Counts bytes.
    pub(crate) fn bytes(&mut self, count: u64) -> Result<()> {
        self.bytes = self.bytes.saturating_add(count);
        self.within(self.bytes, self.bounds.bytes, "bytes")
    }

    /// The bytes that are still allowed.
    pub(crate) fn left(&self) -> u64 {
        self.bounds.bytes - self.bytes
    }

    fn within(&self, found: u64, most: u64, unit: &'static str) -> Result<()> {
        if found <= most {
            return Ok(());
        }
        Err(Error::TooLarge {
            origin: self.origin.to_owned(),
            most,
            unit,
        })
    }
}
