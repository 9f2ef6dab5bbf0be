//! A program with only some of MLX's functions, as from a static library, and with an mlx-c that returns nothing. This
//! file defines these functions.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use mlx_row_policy::{Error, Policy, Stream, dispatch_stats, has_policies, process_policy};

/// The return value of mlx-c's functions.
static OUTCOME: AtomicI32 = AtomicI32::new(0);

#[unsafe(no_mangle)]
extern "C" fn mlx_row_process_policy(policy: &mut [i32; 2]) -> c_int {
    *policy = Policy::EXACT.numbers();
    0
}

#[unsafe(no_mangle)]
extern "C" fn mlx_row_stream_policy(_index: i32, policy: &mut [i32; 2]) -> c_int {
    *policy = [-1, 0];
    0
}

/// Functions of mlx-c; they ignore their arguments.
macro_rules! of_mlx_c {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(_: *mut c_void) -> c_int {
            OUTCOME.load(Ordering::Relaxed)
        }
    )*};
}

of_mlx_c! {
    mlx_get_streams mlx_vector_stream_get mlx_vector_stream_free mlx_stream_free mlx_stream_get_index
    mlx_stream_get_device mlx_get_default_stream mlx_set_default_stream mlx_get_default_device mlx_device_free
    mlx_device_equal
}

#[unsafe(no_mangle)]
extern "C" fn mlx_vector_stream_size(_: *mut c_void) -> usize {
    0
}

#[test]
fn a_function_that_the_linker_left_out_is_named() {
    assert_eq!(process_policy(), Ok(Policy::EXACT));
    let left_out = |function| Some(Error::LeftOut { function });
    assert_eq!(has_policies().err(), left_out("mlx_row_has_kernels"));
    assert_eq!(dispatch_stats().err(), left_out("mlx_row_counts"));
    let made = Stream::with_policy(Policy::EXACT);
    assert_eq!(made.err(), left_out("mlx_row_new_stream"));
}

#[test]
fn a_scope_says_why_it_does_not_begin() {
    let stream = Stream::from_index(7).unwrap();
    let outcome = stream.scope(|| panic!("work is not run"));
    assert_eq!(outcome, Err::<(), _>(Error::NoStream { index: 7 }));
    OUTCOME.store(1, Ordering::Relaxed);
    let outcome = stream.scope(|| panic!("work is not run"));
    assert_eq!(outcome, Err::<(), _>(Error::MlxC));
}
