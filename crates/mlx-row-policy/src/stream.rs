use std::marker::PhantomData;

use mlx_terms::Policy;

use crate::{Error, Result, policy_of, sys};

/// One of MLX's streams, whoever made it: its index.
///
/// MLX keeps every stream for the life of the process, so that an index never means another one.
#[derive(Debug)]
pub struct Stream {
    index: i32,
    /// MLX's encoders belong to the thread that made the stream.
    not_send_nor_sync: PhantomData<*const ()>,
}

impl Stream {
    /// The stream that another binding made: `get_index` of mlx-rs's `Stream` and `mlx_stream_get_index` of mlx-c say its
    /// index. It must not be the index of mlx-c's `mlx_stream_thread_local`, which MLX counts apart: let
    /// `mlx_stream_from_thread_local` resolve that first.
    ///
    /// MLX evaluates on it only in the thread that made it.
    ///
    /// # Errors
    ///
    /// [`Error::Mlx`] if there is no such stream; [`Error::NoOverlay`] and [`Error::LeftOut`], if the linked MLX cannot
    /// say.
    pub fn from_index(index: i32) -> Result<Self> {
        Error::check(sys::stream_policy(index, &mut [0; 2]))?;
        Ok(Self::of(index))
    }

    /// Makes a GPU stream of the calling thread, with a policy. [`Stream::scope`] has other bindings use it.
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
    /// [`Error::Mlx`] if the stream has a policy, if an operation that policies cover was decided on it already, or,
    /// except for [`Policy::DEFAULT`], if it is one of the CPU or the linked MLX has no kernels for policies;
    /// [`Error::NoOverlay`], [`Error::LeftOut`].
    pub fn set_policy(&self, policy: Policy) -> Result<()> {
        let [kind, rows] = policy.numbers();
        Error::check(sys::set_stream_policy(self.index, kind, rows))
    }

    /// The policy that the stream was given.
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

    /// Makes this stream MLX's default one of its device, on this thread and for the time of `work`. The one before is
    /// the default again when `work` returns or panics. Scopes nest.
    ///
    /// Operations that name no stream are built on it then: those of mlx-rs, unless its `with_stream` is in force, which
    /// goes first; and those that MLX builds by itself inside of others. So a stream that mlx-rs made is entered twice:
    ///
    /// ```ignore
    /// let result = mlx_rs::with_stream(&stream, || exact.scope(|| model.forward(&tokens)))?;
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OtherDevice`] if another device is MLX's default one, [`Error::NoMlxC`] without mlx-c,
    /// [`Error::NoStream`] if it knows no such stream, [`Error::MlxC`] if it fails; `work` is not run then. Where mlx-c
    /// fails and nobody has set an error handler (mlx-rs does), mlx-c's own prints why and ends the process.
    #[cfg(feature = "mlx-c")]
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let _restore = Scope::enter(self.index)?;
        Ok(work())
    }
}

/// Puts back MLX's former default stream.
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
