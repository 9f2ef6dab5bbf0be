//! How failures cross the bridge, and what it checks itself.

#![allow(clippy::unwrap_used)] // in helpers too

use mlx_overlay_sys as sys;
use sys::{DeviceKind, ElementKind};

fn text<T>(result: Result<T, cxx::Exception>) -> String {
    match result {
        Ok(_) => panic!("expected an error"),
        Err(error) => error.what().to_owned(),
    }
}

#[test]
fn what_is_no_exception_arrives_as_an_error() {
    assert_eq!(
        text(sys::throw_int()),
        "mlx-overlay: C++ threw something that is not a std::exception"
    );
}

#[test]
fn an_exception_arrives_with_its_text() {
    assert_eq!(text(sys::throw_text("K = ∞")), "K = ∞");
}

#[test]
fn linked_library_is_the_stamped_one() {
    assert_eq!(sys::version().unwrap(), sys::built::VERSION);
}

#[test]
fn bytes_must_fill_the_shape() {
    let four = [0u8; 4];
    assert!(sys::from_bytes(&four, &[1], ElementKind::F32).is_ok());
    assert!(
        text(sys::from_bytes(&four, &[2], ElementKind::F32))
            .contains("4 bytes do not fill the shape")
    );
    assert!(
        text(sys::from_bytes(&four, &[-1], ElementKind::F32)).contains("does not fit in 64 bits")
    );
    let huge = [i32::MAX; 3];
    assert!(
        text(sys::from_bytes(&four, &huge, ElementKind::F32)).contains("does not fit in 64 bits")
    );
}

#[test]
fn memory_of_a_lazy_array_is_refused() {
    let stream = sys::default_stream(DeviceKind::Cpu).unwrap();
    let one = sys::from_bytes(&[0u8; 4], &[1, 1], ElementKind::F32).unwrap();
    let lazy = sys::matmul(&one, &one, stream).unwrap();
    assert!(text(sys::bytes(&lazy)).contains("not settled"));
    assert!(text(sys::share(&lazy)).contains("not settled"));
    let settled = sys::settle(&lazy, stream).unwrap();
    assert_eq!(sys::bytes(&settled).unwrap(), [0u8; 4]);
}

/// MLX writes a result over an input whose memory it owns and nobody else holds, and asks without
/// synchronizing.
#[test]
fn memory_that_was_handed_out_is_never_reused() {
    let stream = sys::default_stream(DeviceKind::Cpu).unwrap();
    let one = sys::from_bytes(&[0u8; 4], &[1, 1], ElementKind::F32).unwrap();
    assert!(sys::memory_is_owned(&one).unwrap());
    let settled = sys::settle(&one, stream).unwrap();
    assert!(!sys::memory_is_owned(&settled).unwrap());
    assert!(!sys::memory_is_owned(&sys::share(&settled).unwrap()).unwrap());
}

#[test]
fn a_failure_where_kernels_run_arrives_from_eval() {
    let stream = sys::default_stream(DeviceKind::Cpu).unwrap();
    let one = sys::from_bytes(&[0u8; 4], &[1], ElementKind::F32).unwrap();
    let failing = sys::fails_when_run(&one, stream).unwrap();
    assert_eq!(
        text(sys::eval(&[sys::ArrayRef { array: &failing }])),
        "failed when run"
    );
}

#[test]
fn a_stream_of_another_thread_is_an_error() {
    let foreign = std::thread::spawn(|| sys::new_stream(DeviceKind::Cpu).unwrap())
        .join()
        .unwrap();
    let one = sys::from_bytes(&[0u8; 4], &[1, 1], ElementKind::F32).unwrap();
    let lazy = sys::matmul(&one, &one, foreign).unwrap();
    assert!(text(sys::settle(&lazy, foreign)).contains("in current thread"));
}
