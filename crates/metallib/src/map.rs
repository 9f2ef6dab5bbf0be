//! The one `unsafe` of the crate, behind the feature `mmap`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;

/// Maps a file for reading. Pages that nobody looks at are never loaded, which is what makes listing a library of
/// hundreds of megabytes cheap.
///
/// The file must not be changed or cut while the map lives: the bytes would change under a shared reference, and a
/// page beyond the new end raises SIGBUS. Replace a library by renaming a new file over it, as installers do.
///
/// # Errors
/// When the file cannot be opened or mapped.
pub fn map_file(path: impl AsRef<Path>) -> io::Result<memmap2::Mmap> {
    let file = File::open(path)?;
    // SAFETY: a private, read-only map of a regular file. That nobody writes to the file meanwhile cannot be checked
    // here; it is the documented condition of this function, as it is of every reader that maps its input.
    unsafe { memmap2::Mmap::map(&file) }
}
