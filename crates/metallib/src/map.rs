//! The only `unsafe` code of the crate, behind the feature `mmap`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;

/// Maps a file for reading. Pages that are not used are never loaded, so listing a library of hundreds of megabytes is
/// cheap.
///
/// The file must not be changed or truncated while the map exists: the bytes would change under a shared reference, and
/// a page beyond the new end raises SIGBUS. Replace a library by renaming a new file over it, as installers do.
///
/// # Errors
/// If the file cannot be opened or mapped.
pub fn map_file(path: impl AsRef<Path>) -> io::Result<memmap2::Mmap> {
    let file = File::open(path)?;
    // SAFETY: a private, read-only map of a regular file. This code cannot check that nobody writes to the file
    // meanwhile; it is the documented condition of this function, as of every reader that maps its input.
    unsafe { memmap2::Mmap::map(&file) }
}
