use std::path::Path;

use serde::Deserialize;

use crate::Result;

/// The two tree ids in `mlx.lock` that decide what may be linked. Other code reads the rest of that file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Ids {
    /// The tree id of the unpatched source.
    pub base_tree: String,
    /// The tree id of the source with the overlay.
    pub final_tree: String,
}

impl Ids {
    /// Reads the ids from `mlx.lock`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or lacks an id.
    pub fn read(lock: impl AsRef<Path>) -> Result<Self> {
        let path = lock.as_ref();
        crate::parse(path, &crate::text(path)?)
    }

    /// The id that a build with or without the overlay must have, and its name in the lock.
    pub(crate) fn wanted(&self, pristine: bool) -> (&'static str, &str) {
        if pristine {
            ("base_tree", &self.base_tree)
        } else {
            ("final_tree", &self.final_tree)
        }
    }
}
