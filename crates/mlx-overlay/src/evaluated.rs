use std::fmt;

use cxx::UniquePtr;
use mlx_overlay_sys as sys;

use crate::array::check_dtype;
use crate::{Array, Dtype, Element, Error, Result};

/// The contents of an evaluated array: no graph, no stream, and memory that is never written to again.
///
/// Any thread can read and drop it, or use it in its own graph with [`Evaluated::to_array`].
pub struct Evaluated {
    raw: UniquePtr<sys::Array>,
    /// The memory that `raw` keeps alive.
    bytes: *const u8,
    len: usize,
    shape: Vec<usize>,
    dtype: Dtype,
}

// SAFETY: `raw` comes from the bridge's `settle`. Its descriptor belongs only to it, is marked available and is
// detached from the graph, so only the calls below read or write it; `share` only reads it and counts references with
// atomics. The memory is a view that MLX does not own, so MLX never passes it to a kernel to write. Releasing it frees
// through MLX's allocator, which locks.
unsafe impl Send for Evaluated {}
// SAFETY: as above; no method changes anything.
unsafe impl Sync for Evaluated {}

impl Evaluated {
    pub(crate) fn new(raw: UniquePtr<sys::Array>, shape: Vec<usize>, dtype: Dtype) -> Result<Self> {
        let bytes = sys::bytes(&raw)?;
        let (bytes, len) = (bytes.as_ptr(), bytes.len());
        Ok(Self {
            raw,
            bytes,
            len,
            shape,
            dtype,
        })
    }

    /// The elements, in row-major order.
    ///
    /// # Errors
    ///
    /// [`Error::Dtype`] if they are not of type `T`; [`Error::Bytes`] for a `bool` that is neither 0 nor 1.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        check_dtype::<T>(self.dtype)?;
        if self.len == 0 {
            return Ok(&[]);
        }
        assert!(
            self.bytes.cast::<T>().is_aligned(),
            "MLX's buffers are aligned for their elements"
        );
        // SAFETY: `bytes` points to `len` bytes, which are initialized, kept alive by `raw` and never written.
        let bytes = unsafe { std::slice::from_raw_parts(self.bytes, self.len) };
        if !self.dtype.allows(bytes) {
            return Err(Error::Bytes {
                bytes: self.len,
                shape: self.shape.clone(),
                dtype: self.dtype,
            });
        }
        // SAFETY: these bytes are elements of type `T`, aligned as checked, and every bit pattern is a value of `T`
        // unless `allows` rejects it.
        Ok(
            unsafe {
                std::slice::from_raw_parts(self.bytes.cast::<T>(), self.len / size_of::<T>())
            },
        )
    }

    /// Puts an array with these contents into the calling thread's graph, without copying them.
    ///
    /// # Errors
    ///
    /// [`Error::ThreadEnding`] or [`Error::ProcessEnding`].
    pub fn to_array(&self) -> Result<Array> {
        Array::known(sys::share(&self.raw)?)
    }

    /// The extents of the dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The bytes of the elements in this machine's byte order, in row-major order.
    pub fn as_bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: as in `as_slice`.
        unsafe { std::slice::from_raw_parts(self.bytes, self.len) }
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }
}

impl fmt::Debug for Evaluated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Evaluated({}, {:?})", self.dtype, self.shape)
    }
}

// These assertions fix which types may cross threads, so that a changed field cannot change that silently.
const _: () = {
    const fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<Evaluated>();
    crosses_threads::<crate::Error>();
    crosses_threads::<crate::BuildInfo>();
};
