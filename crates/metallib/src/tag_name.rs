//! The names of tags, in files and in errors.

use std::fmt;

/// The four bytes that name a tag, `NAME` for instance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TagName(pub [u8; 4]);

impl TagName {
    pub(crate) const END: Self = Self(*b"ENDT");
}

impl fmt::Display for TagName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for TagName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TagName({self})")
    }
}
