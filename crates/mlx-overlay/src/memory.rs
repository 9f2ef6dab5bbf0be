//! What MLX's allocator holds, for all threads of the process, and its limits.
//!
//! ```
//! use mlx_overlay::{Array, memory};
//!
//! # fn main() -> mlx_overlay::Result<()> {
//! let before = memory::in_use()?;
//! let kept = Array::from_slice(&vec![0u8; 1 << 20], &[1 << 20])?;
//! assert!(memory::in_use()?.active >= before.active + kept.len());
//! drop(kept);
//! memory::clear_cache()?;
//! # Ok(())
//! # }
//! ```

use mlx_overlay_sys as sys;

use crate::Result;

/// Bytes that MLX's allocator holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// In arrays.
    pub active: usize,
    /// The most that was in arrays at once, since the process began or [`reset_peak`].
    pub peak: usize,
    /// Kept for later arrays.
    pub cached: usize,
    /// What [`set_limit`] sets.
    pub limit: usize,
}

/// What MLX's allocator holds now.
///
/// ```
/// # use mlx_overlay::memory;
/// # fn main() -> mlx_overlay::Result<()> {
/// let now = memory::in_use()?;
/// assert!(now.active <= now.peak && now.peak < now.limit);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`crate::Error::ThreadEnding`] or [`crate::Error::ProcessEnding`].
pub fn in_use() -> Result<MemoryUse> {
    let sys::MemoryUse {
        active,
        peak,
        cached,
        limit,
    } = sys::memory_use()?;
    Ok(MemoryUse {
        active,
        peak,
        cached,
        limit,
    })
}

/// Counts the peak from now on.
///
/// ```
/// # use mlx_overlay::{Array, Dtype, memory};
/// # fn main() -> mlx_overlay::Result<()> {
/// drop(Array::zeros(&[1 << 20], Dtype::U8)?.evaluate()?);
/// memory::reset_peak()?;
/// assert!(memory::in_use()?.peak < 1 << 20);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`crate::Error::ThreadEnding`] or [`crate::Error::ProcessEnding`].
pub fn reset_peak() -> Result<()> {
    Ok(sys::reset_peak_memory()?)
}

/// Sets how many bytes MLX should hold, and gives the former number. The device's own is what MLX takes at first.
///
/// It is two things. An array that alone is larger is refused when it is built ([`crate::Error::OutOfMemory`]). When
/// arrays together are larger, an evaluation waits for others to release memory and clears the cache; if that does not
/// help, it goes on. It fails only when the device refuses.
///
/// ```
/// # use mlx_overlay::{Array, Dtype, Error, memory};
/// # fn main() -> mlx_overlay::Result<()> {
/// let former = memory::set_limit(1 << 20)?;
/// let bytes = 1 << 21;
/// let refused = Array::zeros(&[bytes], Dtype::U8);
/// assert_eq!(refused.unwrap_err(), Error::OutOfMemory { bytes });
/// memory::set_limit(former)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`crate::Error::ThreadEnding`] or [`crate::Error::ProcessEnding`].
pub fn set_limit(bytes: usize) -> Result<usize> {
    Ok(sys::set_memory_limit(bytes)?)
}

/// Sets how many bytes MLX keeps for later arrays at most, and gives the former number.
///
/// ```
/// # use mlx_overlay::{Array, Dtype, memory};
/// # fn main() -> mlx_overlay::Result<()> {
/// memory::set_cache_limit(0)?;
/// drop(Array::zeros(&[1 << 20], Dtype::U8)?.evaluate()?);
/// assert_eq!(memory::in_use()?.cached, 0);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// As those of [`clear_cache`].
pub fn set_cache_limit(bytes: usize) -> Result<usize> {
    Ok(sys::set_cache_limit(bytes)?)
}

/// Gives what is kept for later arrays back to the system. In a build for the CPU alone it waits for the work of all
/// threads.
///
/// ```
/// # use mlx_overlay::{Array, Dtype, memory};
/// # fn main() -> mlx_overlay::Result<()> {
/// drop(Array::zeros(&[1 << 20], Dtype::U8)?.evaluate()?);
/// memory::clear_cache()?;
/// assert_eq!(memory::in_use()?.cached, 0);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`crate::Error::ThreadEnding`] or [`crate::Error::ProcessEnding`].
pub fn clear_cache() -> Result<()> {
    Ok(sys::clear_cache()?)
}
