use std::cell::Cell;
use std::marker::PhantomData;

use mlx_overlay_sys::{self as sys, RawStream};

use crate::{Device, Result, state};

thread_local! {
    /// The stream on which this thread builds operations; if none was entered, the default stream of
    /// the preferred device.
    static CURRENT: Cell<Option<RawStream>> = const { Cell::new(None) };
}

/// A queue of work on one device. It belongs to one thread.
///
/// Operations remember the stream on which they were built, and always run there. So the stream
/// fixes the properties of a piece of work, for example its device:
///
/// ```
/// # use mlx_overlay::{Array, Device, Stream, matmul};
/// # fn main() -> mlx_overlay::Result<()> {
/// let a = Array::from_slice(&[2.0f32], &[1, 1])?;
/// let stream = Stream::new(Device::preferred()?)?;
/// let product = stream.scope(|| matmul(&a, &a))?;
/// assert_eq!(product.to_vec::<f32>()?, [4.0]);
/// # Ok(())
/// # }
/// ```
///
/// [`Device::preferred`] is the GPU if there is one. [`Device::Cpu`] requires that the linked MLX was built with the CPU
/// back-end (`--cpu`).
///
/// MLX never destroys a stream: its index stays in use and, once a CPU stream has run something, so
/// does an operating-system thread. Make few, and keep them.
#[derive(Debug)]
pub struct Stream {
    raw: RawStream,
    /// MLX's encoders belong to the thread that made the stream.
    not_send_nor_sync: PhantomData<*const ()>,
}

impl Stream {
    /// Makes a stream on a device, for the calling thread.
    ///
    /// # Errors
    ///
    /// [`crate::Error::NoDevice`] if there is no such device; MLX's.
    pub fn new(device: Device) -> Result<Self> {
        device.require()?;
        Ok(Self::from_raw(sys::new_stream(device.raw())?))
    }

    /// The calling thread's default stream of a device.
    ///
    /// # Errors
    ///
    /// [`crate::Error::NoDevice`] if there is no such device; MLX's.
    pub fn default_of(device: Device) -> Result<Self> {
        device.require()?;
        Ok(Self::from_raw(sys::default_stream(device.raw())?))
    }

    /// The stream on which operations of this thread are built: that of the innermost
    /// [`Stream::scope`], else the default stream of [`Device::preferred`].
    ///
    /// # Errors
    ///
    /// MLX's.
    pub fn current() -> Result<Self> {
        Ok(Self::from_raw(current()?))
    }

    /// The device on which its work runs.
    pub fn device(&self) -> Device {
        Device::from_raw(self.raw.device)
    }

    /// MLX's index of the stream, unique over all devices and never reused, except that another thread gets the default CPU
    /// stream of a thread that ended.
    pub fn index(&self) -> i32 {
        self.raw.index
    }

    /// Runs `work` with this stream as the thread's current stream and as MLX's default stream of its
    /// device. Both are restored when `work` returns or panics. Scopes can be nested.
    ///
    /// # Errors
    ///
    /// Those of `work`; MLX's.
    pub fn scope<T, E: From<crate::Error>>(
        &self,
        work: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let _restore = Scope::enter(self.raw)?;
        work()
    }

    /// Waits until all work that was started on this stream is done.
    ///
    /// # Errors
    ///
    /// [`crate::Error::InPolicyHook`] inside a policy hook; MLX's, including the error of a failed kernel, which is
    /// returned once.
    pub fn synchronize(&self) -> Result<()> {
        state::synchronize(self.raw)
    }

    pub(crate) fn raw(&self) -> RawStream {
        self.raw
    }

    pub(crate) fn from_raw(raw: RawStream) -> Self {
        Self {
            raw,
            not_send_nor_sync: PhantomData,
        }
    }
}

pub(crate) fn current() -> Result<RawStream> {
    match CURRENT.get() {
        Some(raw) => Ok(raw),
        None => Ok(sys::default_stream(Device::preferred()?.raw())?),
    }
}

/// Restores what was current before.
struct Scope {
    current: Option<RawStream>,
    default: RawStream,
}

impl Scope {
    fn enter(raw: RawStream) -> Result<Self> {
        // Also set MLX's default, for operations inside MLX that name no stream. `StreamContext` would
        // also write the process-wide default device.
        let default = sys::default_stream(raw.device)?;
        sys::set_default_stream(raw)?;
        Ok(Self {
            current: CURRENT.replace(Some(raw)),
            default,
        })
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        CURRENT.set(self.current);
        // Fails only while the process exits; then nothing more is built.
        let _ = sys::set_default_stream(self.default);
    }
}
