//! How failures cross the bridge, and which checks the bridge makes.

#![allow(clippy::unwrap_used)] // in helpers too

use cxx::UniquePtr;
use mlx_overlay_sys as sys;
use mlx_terms::Mode;
use sys::{ArrayRef, DeviceKind, ElementKind, WeightFormat};

fn text<T>(result: Result<T, cxx::Exception>) -> String {
    match result {
        Ok(_) => panic!("expected an error"),
        Err(error) => error.what().to_owned(),
    }
}

fn settle(
    array: &sys::Array,
    stream: sys::RawStream,
) -> Result<UniquePtr<sys::Array>, cxx::Exception> {
    // SAFETY: no test settles an array after a failed evaluation of it.
    unsafe { sys::settle(array, stream) }
}

#[test]
fn what_is_no_exception_arrives_as_an_error() {
    assert_eq!(
        text(bridge_testing::throw_int()),
        "mlx-overlay: C++ threw something that is not a std::exception"
    );
}

#[test]
fn an_exception_arrives_with_its_text() {
    assert_eq!(text(bridge_testing::throw_text("K = ∞")), "K = ∞");
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
fn a_shape_with_an_extent_of_0_is_filled_by_no_bytes() {
    for shape in [
        [i32::MAX, i32::MAX, i32::MAX, 0],
        [0, i32::MAX, i32::MAX, i32::MAX],
    ] {
        let empty = sys::from_bytes(&[], &shape, ElementKind::I64).unwrap();
        assert_eq!(sys::shape(&empty).unwrap(), shape);
    }
    let negative = sys::from_bytes(&[], &[-1, 0], ElementKind::F32);
    assert!(text(negative).contains("does not fit in 64 bits"));
}

/// MLX reads wherever an index points, and would reinterpret the bits of floats as integers.
#[test]
fn indices_are_bounded_integers() {
    let stream = sys::default_stream(DeviceKind::Cpu).unwrap();
    let bytes = |values: &[u8]| {
        let length = i32::try_from(values.len()).unwrap();
        sys::from_bytes(values, &[length], ElementKind::U8).unwrap()
    };
    let taken = sys::take(&bytes(&[1, 2, 3]), &bytes(&[255, 1]), 0, stream).unwrap();
    let settled = settle(&taken, stream).unwrap();
    assert_eq!(sys::bytes(&settled).unwrap(), [3, 2]);
    let floats = zeros(&[1], ElementKind::F32);
    assert!(text(sys::take(&floats, &floats, 0, stream)).contains("indices must be integers"));
}

#[test]
fn want_of_memory_is_told_with_the_bytes() {
    let stream = sys::default_stream(DeviceKind::Cpu).unwrap();
    let one = zeros(&[1], ElementKind::U8);
    let huge = text(sys::full(&[1 << 30, 1 << 30], &one, stream));
    assert_eq!(huge, format!("{}{}", sys::OUT_OF_MEMORY, 1u64 << 60));
}

#[test]
fn memory_of_a_lazy_array_is_refused() {
    let stream = sys::default_stream(DeviceKind::Cpu).unwrap();
    let one = sys::from_bytes(&[0u8; 4], &[1, 1], ElementKind::F32).unwrap();
    let lazy = sys::matmul(&one, &one, stream).unwrap();
    assert!(text(sys::bytes(&lazy)).contains("not settled"));
    assert!(text(sys::share(&lazy)).contains("not settled"));
    let settled = settle(&lazy, stream).unwrap();
    assert_eq!(sys::bytes(&settled).unwrap(), [0u8; 4]);
}

/// MLX writes a result over an input if it owns the input's memory and nothing else refers to it. That check has no lock.
#[test]
fn memory_that_was_handed_out_is_never_reused() {
    let stream = sys::default_stream(DeviceKind::Cpu).unwrap();
    let one = sys::from_bytes(&[0u8; 4], &[1, 1], ElementKind::F32).unwrap();
    assert!(bridge_testing::memory_is_owned(&one).unwrap());
    let settled = settle(&one, stream).unwrap();
    assert!(!bridge_testing::memory_is_owned(&settled).unwrap());
    assert!(!bridge_testing::memory_is_owned(&sys::share(&settled).unwrap()).unwrap());
}

#[test]
fn a_failure_where_kernels_run_arrives_from_eval() {
    let stream = sys::default_stream(DeviceKind::Cpu).unwrap();
    let one = sys::from_bytes(&[0u8; 4], &[1], ElementKind::F32).unwrap();
    let failing = bridge_testing::fails_when_run(&one, stream).unwrap();
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
    assert!(text(settle(&lazy, foreign)).contains("in current thread"));
}

/// An array of zeros.
fn zeros(shape: &[i32], kind: ElementKind) -> UniquePtr<sys::Array> {
    let width = match kind {
        ElementKind::U8 => 1,
        ElementKind::F16 | ElementKind::Bf16 => 2,
        _ => 4,
    };
    let values: i32 = shape.iter().product();
    let bytes = vec![0; usize::try_from(values).unwrap() * width];
    sys::from_bytes(&bytes, shape, kind).unwrap()
}

const FOUR_BITS: WeightFormat = WeightFormat {
    mode: Mode::Affine as i32,
    bits: 4,
    group_size: 32,
};

/// MLX divides by extents, by bits and by group sizes.
#[test]
fn nothing_is_divided_by_zero() {
    let cpu = sys::default_stream(DeviceKind::Cpu).unwrap();
    let empty = zeros(&[0, 64], ElementKind::F32);
    let full = zeros(&[64, 64], ElementKind::F32);
    for said in [
        text(sys::matmul(&empty, &full, cpu)),
        text(sys::matmul(&full, &empty, cpu)),
        text(sys::as_type(&empty, ElementKind::F16, cpu)),
        text(sys::add(&empty, &empty, cpu)),
        text(sys::multiply(&empty, &empty, cpu)),
        text(sys::sigmoid(&empty, cpu)),
        text(sys::argmax(&empty, cpu)),
        text(sys::reshape(&empty, &[64, 0], cpu)),
        text(sys::quantize(&empty, &FOUR_BITS, cpu)),
    ] {
        assert_eq!(said, "mlx-overlay: the array has no elements");
    }
    for shape in [[0, -1], [64, -64]] {
        assert!(text(sys::reshape(&full, &shape, cpu)).contains("extents must be at least 1"));
    }
    for (mode, bits, group_size) in [
        (0, 4, 0),
        (0, 0, 32),
        (0, 7, 32),
        (0, 4, -32),
        (9, 4, 32),
        (-1, 4, 32),
        (3, 4, 32),
    ] {
        let format = WeightFormat {
            mode,
            bits,
            group_size,
        };
        let said = text(sys::quantize(&full, &format, cpu));
        assert!(said.contains("no kernels for the format"), "{said}");
    }
}

/// MLX assumes that scales have as many rows, and values as many positions, as their counterparts.
#[test]
fn nothing_is_read_past_its_end() {
    let cpu = sys::default_stream(DeviceKind::Cpu).unwrap();
    let x = zeros(&[2, 64], ElementKind::F32);
    let packed = zeros(&[8, 8], ElementKind::U32);
    let [good, short, flat, wide] = [&[8, 2][..], &[4, 2], &[16], &[8, 4]].map(|shape| {
        let array = zeros(shape, ElementKind::F32);
        sys::shape(&array).unwrap();
        array
    });
    let multiply = |parts: &[&UniquePtr<sys::Array>]| {
        let parts: Vec<_> = parts.iter().map(|array| ArrayRef { array }).collect();
        let dequantized = sys::dequantize(&parts, &FOUR_BITS, cpu).map(|_| ());
        let product = sys::quantized_matmul(&x, &parts, &FOUR_BITS, cpu).map(|_| ());
        assert_eq!(dequantized.is_ok(), product.is_ok());
        product
    };
    multiply(&[&packed, &good, &good]).unwrap();
    for parts in [
        &[&packed, &short, &short][..],
        &[&packed, &good, &short],
        &[&packed, &flat, &flat],
        &[&packed, &wide, &wide],
        &[&good, &good, &good],
        &[&packed, &good],
        &[&packed],
        &[],
    ] {
        assert!(text(multiply(parts)).starts_with("mlx-overlay: a quantized matrix"));
    }
    let parts = [&packed, &good, &good].map(|array| ArrayRef { array });
    for shape in [&[2, 32][..], &[]] {
        let x = zeros(shape, ElementKind::F32);
        let said = text(sys::quantized_matmul(&x, &parts, &FOUR_BITS, cpu));
        assert!(said.contains("of 64 values"), "{said}");
    }

    let rows = zeros(&[3, 4], ElementKind::F32);
    sys::take_rows(&rows, &[2, 0], cpu).unwrap();
    assert!(
        text(sys::take_rows(&rows, &[3], cpu))
            .contains("index 3 is out of range: the number of entries is 3")
    );
    let scalar = zeros(&[], ElementKind::F32);
    assert!(
        text(sys::take_rows(&scalar, &[0], cpu))
            .contains("index 0 is out of range: the number of entries is 0")
    );

    let [keys, values] = [5, 4].map(|positions| zeros(&[1, 1, positions, 8], ElementKind::F32));
    let parts = [&keys, &keys, &values].map(|array| ArrayRef { array });
    let said = text(sys::attention(&parts, 1.0, false, &[], &[], cpu));
    assert!(
        said.contains("keys have 5 positions, but values have 4"),
        "{said}"
    );
}

/// MLX looks up streams when work is submitted to them.
#[test]
fn a_stream_that_nobody_made_is_an_error() {
    let one = zeros(&[1, 1], ElementKind::F32);
    for device in [DeviceKind::Cpu, DeviceKind::Gpu] {
        for index in [-1, 1 << 20] {
            let stream = sys::RawStream { device, index };
            let lazy = sys::matmul(&one, &one, stream).unwrap();
            assert!(sys::eval(&[ArrayRef { array: &lazy }]).is_err());
        }
    }
    let nowhere = sys::RawStream {
        device: DeviceKind { repr: 9 },
        index: 0,
    };
    assert!(text(sys::matmul(&one, &one, nowhere)).contains("unknown device"));
}

#[test]
fn evaluated_memory_that_is_not_settled_is_refused() {
    let one = zeros(&[1], ElementKind::F32);
    assert!(text(sys::bytes(&one)).contains("not settled"));
    assert!(text(sys::share(&one)).contains("not settled"));
    let lazy = sys::add(&one, &one, sys::default_stream(DeviceKind::Cpu).unwrap()).unwrap();
    assert!(text(bridge_testing::memory_is_owned(&lazy)).contains("not evaluated"));
}
