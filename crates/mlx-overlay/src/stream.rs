use std::cell::Cell;
use std::marker::PhantomData;

use mlx_overlay_sys::{self as sys, RawStream};

use crate::{Device, Result, state};

thread_local! {
    /// The stream that operations of this thread are built on; the preferred device's default one
    /// if none was entered.
    static CURRENT: Cell<Option<RawStream>> = const { Cell::new(None) };
}

/// A queue of work on one device, of one thread.
///
/// Operations remember the stream they were built on and run there when they are evaluated,
/// whenever that is. So what is to hold for a piece of work, its device for example, is fixed by
/// the stream it is built on:
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
/// [`Device::preferred`] is the GPU where there is one. [`Device::Cpu`] is there where the linked MLX
/// was built with the CPU back-end (`--cpu`).
///
/// MLX never destroys a stream: its index stays taken, and once a CPU stream has run something, so
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

    /// The stream that operations of this thread are built on: that of the innermost
    /// [`Stream::scope`], else the default stream of [`Device::preferred`].
    ///
    /// # Errors
    ///
    /// MLX's.
    pub fn current() -> Result<Self> {
        Ok(Self::from_raw(current()?))
    }

    /// The device that its work runs on.
    pub fn device(&self) -> Device {
        Device::from_raw(self.raw.device)
    }

    /// MLX's index of the stream: unique over all devices, and never used again, but that the default CPU stream of a
    /// thread that ended is given to another thread.
    pub fn index(&self) -> i32 {
        self.raw.index
    }

    /// Builds operations on this stream: for the time of `work` it is the thread's current one, and
    /// MLX's default one of its device. Both are as before when `work` returns or panics. Scopes
    /// nest.
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
    /// [`crate::Error::InPolicyHook`] inside of a policy hook; MLX's, that of a failed kernel included, once.
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

/// Puts back what was current before.
struct Scope {
    current: Option<RawStream>,
    default: RawStream,
}

impl Scope {
    fn enter(raw: RawStream) -> Result<Self> {
        // MLX's default too, for operations inside MLX that name no stream. Not through its
        // `StreamContext`: that also writes the process-wide default device.
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
        // Fails only while the process exits, and then nothing is built any more.
        let _ = sys::set_default_stream(self.default);
    }
}
