//! What the project's own files say: the pin, the patches in their order, and the lock that follows from both.

pub mod lock;
pub mod manifest;
pub mod patch;
pub mod series;
