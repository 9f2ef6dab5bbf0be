//! The functions of `linked.c`. Those that only take references are safe: they fail if MLX lacks what they call.

#[cfg(feature = "mlx-c")]
use std::ffi::c_void;
use std::ffi::{CStr, c_char, c_int};

/// Declares functions under the names that they have in this version of the crate.
macro_rules! linked {
    ($($safety:tt fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        unsafe extern "C" {$(
            #[link_name = concat!(
                "mlx_row_policy_",
                env!("CARGO_PKG_VERSION_MAJOR"), "_", env!("CARGO_PKG_VERSION_MINOR"), "_",
                stringify!($name)
            )]
            pub(crate) $safety fn $name($($argument: $type),*) $(-> $result)?;
        )*}
    };
}

linked! {
    safe fn take_absent() -> *const c_char;
    safe fn last_error() -> *const c_char;
    safe fn process_policy(policy: &mut [i32; 2]) -> c_int;
    safe fn has_kernels() -> c_int;
    safe fn set_stream_policy(index: i32, kind: i32, rows: i32) -> c_int;
    safe fn new_stream(kind: i32, rows: i32, index: &mut i32) -> c_int;
    safe fn stream_policy(index: i32, policy: &mut [i32; 2]) -> c_int;
    safe fn plan_product(problem: &[i32; 8], plan: &mut [i32; 6]) -> c_int;
    // The array must have room for that many counters.
    unsafe fn counts(counts: *mut u64, capacity: usize) -> usize;
    safe fn reset_counts();
}

#[cfg(feature = "mlx-c")]
linked! {
    safe fn enter(index: i32, previous: &mut *mut c_void) -> c_int;
    // Must be called once for each success of `enter`, with the value that it stored.
    unsafe fn leave(previous: *mut c_void);
}

/// The first function since the last query that was called although the program lacks it.
pub(crate) fn absent() -> Option<&'static str> {
    let name = take_absent();
    if name.is_null() {
        return None;
    }
    // SAFETY: it is a literal in `linked.c`.
    Some(unsafe { CStr::from_ptr(name) }.to_str().unwrap_or_default())
}

/// The reason why this thread's last call failed.
pub(crate) fn why() -> String {
    // SAFETY: the text is zero-terminated and stays valid until the thread's next call of MLX's row policies.
    let text = unsafe { CStr::from_ptr(last_error()) };
    text.to_string_lossy().into_owned()
}
