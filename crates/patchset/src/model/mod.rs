//! The project's own files: the pin, the series of patches, and the lock that follows from both.

pub mod lock;
pub mod manifest;
pub mod patch;
pub mod series;
