//! The memory of MLX's allocator, shared by all threads of the process, and its limits.
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

/// Sizes in bytes of the memory that MLX's allocator has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Used by arrays.
    pub active: usize,
    /// The highest `active` since the process began or since [`reset_peak`].
    pub peak: usize,
    /// Kept for later arrays.
    pub cached: usize,
    /// The limit that [`set_limit`] sets.
    pub limit: usize,
}

/// The memory that MLX's allocator has now.
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

/// Resets the peak.
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

/// Sets MLX's memory limit in bytes, and returns the previous one. The default depends on the device.
///
/// The limit has two effects. A single array above it is rejected when it is built ([`crate::Error::OutOfMemory`]). If
/// all arrays together are above it, an evaluation waits for others to release memory and clears the cache. If that does
/// not help, it continues, and fails only if the device has no memory left.
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

/// Sets how many bytes MLX keeps for later arrays at most, and returns the previous limit.
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
/// Those of [`clear_cache`].
pub fn set_cache_limit(bytes: usize) -> Result<usize> {
    Ok(sys::set_cache_limit(bytes)?)
}

/// Returns the memory that is kept for later arrays to the system. In a CPU-only build it waits for the work of all
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
