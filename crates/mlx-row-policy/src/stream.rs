use std::marker::PhantomData;

use mlx_terms::Policy;

use crate::{Error, Result, policy_of, sys};

/// The index of an MLX stream, no matter which code made the stream.
///
/// MLX keeps every stream for the life of the process, so an index is never reused.
#[derive(Debug)]
pub struct Stream {
    index: i32,
    /// MLX's encoders belong to the thread that made the stream.
    not_send_nor_sync: PhantomData<*const ()>,
}

impl Stream {
    /// The stream that another binding made: mlx-rs's `Stream` returns its index from `get_index`, mlx-c from
    /// `mlx_stream_get_index`. It must not be the index of mlx-c's `mlx_stream_thread_local`, which MLX counts
    /// separately: resolve that first with `mlx_stream_from_thread_local`.
    ///
    /// MLX evaluates on it only in the thread that made it.
    ///
    /// # Errors
    ///
    /// [`Error::Mlx`] if there is no such stream; [`Error::NoOverlay`] and [`Error::LeftOut`], if the linked MLX cannot
    /// check it.
    pub fn from_index(index: i32) -> Result<Self> {
        Error::check(sys::stream_policy(index, &mut [0; 2]))?;
        Ok(Self::of(index))
    }

    /// Makes a GPU stream of the calling thread, with a policy. [`Stream::scope`] makes other bindings use it.
    ///
    /// # Errors
    ///
    /// [`Error::Mlx`] if there is no GPU, or no kernels for a policy other than [`Policy::DEFAULT`];
    /// [`Error::NoOverlay`], [`Error::LeftOut`].
    pub fn with_policy(policy: Policy) -> Result<Self> {
        let [kind, rows] = policy.numbers();
        let mut index = -1;
        Error::check(sys::new_stream(kind, rows, &mut index))?;
        Ok(Self::of(index))
    }

    fn of(index: i32) -> Self {
        Self {
            index,
            not_send_nor_sync: PhantomData,
        }
    }

    /// MLX's index of the stream.
    #[must_use]
    pub fn index(&self) -> i32 {
        self.index
    }

    /// Gives the stream its policy, for the life of the process.
    ///
    /// # Errors
    ///
    /// [`Error::Mlx`] if the stream has a policy, if an operation that policies cover was already decided on it, or
    /// (except for [`Policy::DEFAULT`]) if it is a CPU stream or the linked MLX has no kernels for policies;
    /// [`Error::NoOverlay`], [`Error::LeftOut`].
    pub fn set_policy(&self, policy: Policy) -> Result<()> {
        let [kind, rows] = policy.numbers();
        Error::check(sys::set_stream_policy(self.index, kind, rows))
    }

    /// The policy of the stream; `None` if it has none.
    ///
    /// # Errors
    ///
    /// [`Error::NoOverlay`], [`Error::LeftOut`].
    pub fn policy(&self) -> Result<Option<Policy>> {
        let mut numbers = [0; 2];
        Error::check(sys::stream_policy(self.index, &mut numbers))?;
        match numbers {
            [-1, _] => Ok(None),
            numbers => policy_of(numbers).map(Some),
        }
    }

    /// Runs `work` with this stream as MLX's default for its device on this thread. The previous default is restored
    /// when `work` returns or panics. Scopes can be nested.
    ///
    /// Operations without an explicit stream are then built on it: those of mlx-rs (except inside its `with_stream`, which
    /// takes precedence) and those that MLX builds internally for other operations. So a stream that mlx-rs made needs
    /// both scopes:
    ///
    /// ```ignore
    /// let result = mlx_rs::with_stream(&stream, || exact.scope(|| model.forward(&tokens)))?;
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OtherDevice`] if another device is MLX's default, [`Error::NoMlxC`] without mlx-c, [`Error::NoStream`] if
    /// mlx-c does not have the stream, [`Error::MlxC`] if mlx-c fails. In all these cases `work` is not run. If mlx-c
    /// fails and no error handler is set (mlx-rs sets one), its own handler prints the error and ends the process.
    #[cfg(feature = "mlx-c")]
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let _restore = Scope::enter(self.index)?;
        Ok(work())
    }
}

/// Restores MLX's former default stream.
#[cfg(feature = "mlx-c")]
struct Scope {
    previous: *mut std::ffi::c_void,
}

#[cfg(feature = "mlx-c")]
impl Scope {
    fn enter(index: i32) -> Result<Self> {
        let mut previous = std::ptr::null_mut();
        let outcome = sys::enter(index, &mut previous);
        if let Some(function) = sys::absent() {
            return Err(Error::of_absent(function));
        }
        match outcome {
            0 => Ok(Self { previous }),
            1 => Err(Error::OtherDevice { index }),
            2 => Err(Error::NoStream { index }),
            _ => Err(Error::MlxC),
        }
    }
}

#[cfg(feature = "mlx-c")]
impl Drop for Scope {
    fn drop(&mut self) {
        // SAFETY: `enter` succeeded and stored it; this is the only call.
        unsafe { sys::leave(self.previous) }
    }
}
