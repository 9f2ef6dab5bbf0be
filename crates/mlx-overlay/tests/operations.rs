//! Operations compared with plain Rust and, if Rust does not define the result (NaN, negative axes, arrays without
//! elements), with MLX's documented results. On the CPU and, if there is one, on the GPU.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use mlx_overlay::{
    Array, Device, Dtype, Element, Error, Frequencies, Mask, Positions, Quantization, Result, Rope,
    RopeOptions, Stream, add, argmax, argpartition, as_type, attention, bf16, concatenate, cumsum,
    dequantize, equal, f16, gather_matmul, gather_quantized_matmul, greater, greater_equal,
    layer_norm, less, less_equal, matmul, multiply, not_equal, quantize, quantize_experts, random,
    reshape, rms_norm, rope, rope_with, slice, softmax, softmax_along, sort, take, transpose,
    where_,
};

const NAN: f32 = f32::NAN;

/// The devices that this build can use.
fn devices() -> Vec<Device> {
    let all = [Device::Cpu, Device::Gpu].into_iter();
    all.filter(|device| device.is_available().unwrap())
        .collect()
}

fn on_all(work: impl Fn(Device) -> Result<()>) {
    for device in devices() {
        let stream = Stream::default_of(device).unwrap();
        stream
            .scope(|| work(device))
            .unwrap_or_else(|error| panic!("on the {device}: {error}"));
    }
}

fn array<T: Element>(values: &[T], shape: &[usize]) -> Array {
    Array::from_slice(values, shape).unwrap()
}

#[track_caller]
fn close(found: &Array, expected: &[f32]) {
    let found = as_type(found, Dtype::F32).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let both_nan = found.is_nan() && expected.is_nan();
        assert!(
            both_nan || found == expected || (found - expected).abs() < 1e-4,
            "{found} for {expected}"
        );
    }
}

#[test]
fn every_type_goes_through_the_operations() {
    fn check<T: Element + PartialEq>(three: T, two: T, one: T, zero: T) -> Result<()> {
        let a = array(&[three, one, two], &[3]);
        assert_eq!(a.dtype(), T::DTYPE);
        assert_eq!(sort(&a, 0)?.to_vec::<T>()?, [one, two, three]);
        assert_eq!(
            concatenate(&[&a, &a], 0)?.to_vec::<T>()?,
            [three, one, two, three, one, two]
        );
        assert_eq!(
            where_(
                &equal(&a, &Array::full(&[], two)?)?,
                &Array::zeros(&[], T::DTYPE)?,
                &a
            )?
            .to_vec::<T>()?,
            [three, one, zero]
        );
        assert_eq!(
            cumsum(&array(&[one, zero, one], &[3]), 0)?.to_vec::<T>()?,
            [one, one, two]
        );
        let picks = array(&[2u8, 0], &[2]);
        assert_eq!(take(&a, &picks, 0)?.to_vec::<T>()?, [two, three]);
        assert_eq!(argmax(&a)?.to_vec::<u32>()?, [0]);
        assert_eq!(
            as_type(&as_type(&a, Dtype::I32)?, T::DTYPE)?.to_vec::<T>()?,
            [three, one, two]
        );
        Ok(())
    }
    on_all(|device| {
        check(3i64, 2, 1, 0)?;
        check(3u16, 2, 1, 0)?;
        let both = array(&[true, false], &[2]);
        assert_eq!(both.to_vec::<bool>()?, [true, false]);
        assert_eq!(argmax(&both)?.to_vec::<u32>()?, [0]);
        assert_eq!(cumsum(&both, 0)?.to_vec::<i32>()?, [1, 1]);
        // The simulated device compiles each kernel, which takes seconds.
        if device == Device::Gpu {
            return Ok(());
        }
        check(3.0f32, 2.0, 1.0, 0.0)?;
        let half = [3.0, 2.0, 1.0, 0.0].map(f16::from_f32);
        check(half[0], half[1], half[2], half[3])?;
        let brain = [3.0, 2.0, 1.0, 0.0].map(bf16::from_f32);
        check(brain[0], brain[1], brain[2], brain[3])?;
        check(3i8, 2, 1, 0)?;
        check(3i16, 2, 1, 0)?;
        check(3i32, 2, 1, 0)?;
        check(3u8, 2, 1, 0)?;
        check(3u32, 2, 1, 0)?;
        check(3u64, 2, 1, 0)
    });
    let both = array(&[true, false], &[2]);
    for result in [sort(&both, 0), argpartition(&both, 0, 0)] {
        assert!(matches!(result, Err(Error::Dtype { .. })));
    }
}

#[test]
fn bools_are_0_or_1() {
    let bytes = Array::from_bytes(&[0, 1], &[2], Dtype::Bool).unwrap();
    assert_eq!(bytes.to_vec::<bool>().unwrap(), [false, true]);
    let refused = Array::from_bytes(&[0, 2], &[2], Dtype::Bool).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "2 bytes are not valid for an array of type bool and shape [2]: a bool must be 0 or 1"
    );
    // Devices may store any value for true.
    on_all(|_| {
        let numbers = array(&[2.0f32, 0.0, -0.0, NAN, 256.0, 0.25], &[6]);
        let as_bool = as_type(&numbers, Dtype::Bool)?;
        let expected = [true, false, false, true, true, true];
        assert_eq!(as_bool.to_vec::<bool>()?, expected);
        let bytes = as_type(&array(&[2u8, 0, 255], &[3]), Dtype::Bool)?;
        assert_eq!(bytes.to_vec::<bool>()?, [true, false, true]);
        Ok(())
    });
}

#[test]
fn bytes_are_counted() {
    let refused = |bytes: usize, shape: &[usize], dtype| {
        let error = Array::from_bytes(&vec![0; bytes], shape, dtype).unwrap_err();
        error.to_string()
    };
    assert_eq!(
        refused(7, &[2], Dtype::F32),
        "7 bytes are not valid for an array of type f32 and shape [2]: expected 8 bytes"
    );
    assert_eq!(
        refused(7, &[usize::MAX, 2], Dtype::I64),
        format!(
            "7 bytes are not valid for an array of type i64 and shape [{}, 2]: its size overflows",
            usize::MAX
        )
    );
}

/// A product of extents is 0 if one of them is 0, in any order of multiplication.
#[test]
fn an_extent_of_0_makes_an_array_empty_wherever_it_stands() {
    let m = (1 << 31) - 1;
    for shape in [[0, m, m, m], [m, m, m, 0], [m, 0, m, m], [m, m, 0, m]] {
        for array in [
            Array::from_slice::<f32>(&[], &shape).unwrap(),
            Array::from_bytes(&[], &shape, Dtype::I64).unwrap(),
            Array::zeros(&shape, Dtype::U8).unwrap(),
            Array::full(&shape, true).unwrap(),
        ] {
            assert_eq!(array.shape(), shape);
            assert_eq!(array.len(), 0);
            assert_eq!(array.evaluate().unwrap().as_bytes(), [0u8; 0]);
        }
        let error = reshape(&array(&[1.0f32], &[1]), &shape).unwrap_err();
        assert!(matches!(error, Error::Length { .. }), "{error}");
        let error = random::uniform(&shape, 0.0, 1.0, Dtype::F32, &random::key(0).unwrap());
        assert!(matches!(error, Err(Error::Empty { .. })));
    }
}

#[test]
fn arrays_without_elements_are_refused_by_every_operation() {
    let none = array::<f32>(&[], &[0, 4]);
    let ids = array::<u32>(&[], &[0]);
    let bools = array::<bool>(&[], &[0, 4]);
    let full = array(&[1.0f32; 16], &[4, 4]);
    let four = array(&[0.0f32; 16], &[1, 1, 4, 4]);
    let empty4 = array::<f32>(&[], &[1, 1, 0, 4]);
    let key = random::key(0).unwrap();
    let w = quantize_experts(
        &Array::full(&[2, 4, 32], 1.0f32).unwrap(),
        Quantization::Mxfp4,
    )
    .unwrap();
    let x = Array::full(&[1, 1, 32], 1.0f32).unwrap();
    let options = RopeOptions::new(4, Frequencies::Base(1e4));
    let all: Vec<(&str, Result<Array>)> = vec![
        ("add", add(&none, &full)),
        ("multiply", multiply(&full, &none)),
        ("equal", equal(&none, &none)),
        ("not_equal", not_equal(&none, &none)),
        ("less", less(&none, &none)),
        ("less_equal", less_equal(&none, &none)),
        ("greater", greater(&none, &none)),
        ("greater_equal", greater_equal(&none, &none)),
        ("where_", where_(&bools, &full, &full)),
        ("argmax", argmax(&none)),
        ("softmax", softmax(&none)),
        ("softmax_along", softmax_along(&none, 0)),
        ("sort", sort(&none, -1)),
        ("argpartition", argpartition(&none, 0, 0)),
        ("cumsum", cumsum(&none, 0)),
        ("as_type", as_type(&none, Dtype::U8)),
        ("reshape", reshape(&none, &[0])),
        ("concatenate", concatenate(&[&full, &none], 0)),
        ("concatenate", concatenate(&[], 0)),
        ("take", take(&none, &array(&[0u32], &[1]), 0)),
        ("take", take(&full, &ids, 0)),
        ("matmul", matmul(&full, &none)),
        (
            "gather_matmul",
            gather_matmul(&full, &full, None, &ids, false),
        ),
        (
            "gather_quantized_matmul",
            gather_quantized_matmul(&x, &w, None, &ids, false),
        ),
        ("layer_norm", layer_norm(&none, None, None, 1e-5)),
        (
            "rope_with",
            rope_with(&empty4, &options, Positions::From(0)),
        ),
        (
            "attention",
            attention(&four, &empty4, &empty4, 1.0, Mask::None, None),
        ),
        (
            "attention",
            attention(&four, &four, &four, 1.0, Mask::Array(&bools), None),
        ),
        ("split", random::split(&key, 0)),
        ("categorical", random::categorical(&none, &key)),
        ("uniform", random::uniform(&[0], 0.0, 1.0, Dtype::F32, &key)),
    ];
    for (name, result) in all {
        assert!(
            matches!(result, Err(Error::Empty { .. })),
            "{name}: {result:?}"
        );
    }
    // Operations that move no elements accept them.
    assert_eq!(transpose(&none).unwrap().shape(), [4, 0]);
    on_all(|_| {
        assert_eq!(transpose(&none)?.to_vec::<f32>()?, [0.0; 0]);
        Ok(())
    });
}

#[test]
fn axes_count_from_both_ends() {
    on_all(|_| {
        let a = array(&[4, 1, 3, 2, 6, 5], &[2, 3]);
        assert_eq!(sort(&a, -1)?.to_vec::<i32>()?, [1, 3, 4, 2, 5, 6]);
        assert_eq!(
            sort(&a, 1)?.to_vec::<i32>()?,
            sort(&a, -1)?.to_vec::<i32>()?
        );
        assert_eq!(sort(&a, -2)?.to_vec::<i32>()?, [2, 1, 3, 4, 6, 5]);
        assert_eq!(cumsum(&a, -2)?.to_vec::<i32>()?, [4, 1, 3, 6, 7, 8]);
        assert_eq!(cumsum(&a, 1)?.to_vec::<i32>()?, [4, 5, 8, 2, 8, 13]);
        assert_eq!(
            concatenate(&[&a, &a], -1)?.to_vec::<i32>()?,
            [4, 1, 3, 4, 1, 3, 2, 6, 5, 2, 6, 5]
        );
        let last = take(&a, &array(&[2u32], &[1]), -1)?;
        assert_eq!(last.shape(), [2, 1]);
        assert_eq!(last.to_vec::<i32>()?, [3, 5]);
        Ok(())
    });
    let a = array(&[1.0f32; 6], &[2, 3]);
    let picks = array(&[0u32], &[1]);
    for axis in [2, -3, isize::MAX, isize::MIN] {
        for result in [
            sort(&a, axis),
            cumsum(&a, axis),
            argpartition(&a, 0, axis),
            softmax_along(&a, axis),
            concatenate(&[&a], axis),
            take(&a, &picks, axis),
        ] {
            let error = result.unwrap_err();
            assert!(
                matches!(error, Error::Axis { axis: found, dimensions: 2, .. } if found == axis),
                "{error}"
            );
        }
    }
    let scalar = array(&[1.0f32], &[]);
    let error = sort(&scalar, 0).unwrap_err().to_string();
    assert_eq!(error, "the array has no dimension 0: it has 0 dimensions");
    assert!(matches!(softmax(&scalar), Err(Error::Axis { .. })));
}

/// The documented effect of NaN in each function.
#[test]
fn nan_goes_where_it_is_said_to() {
    on_all(|_| {
        let a = array(&[1.0, NAN, 3.0, 2.0], &[4]);
        assert_eq!(argmax(&a)?.to_vec::<u32>()?, [1]);
        let two = array(&[f32::INFINITY, 2.0, NAN, NAN], &[4]);
        assert_eq!(argmax(&two)?.to_vec::<u32>()?, [2]);
        close(&sort(&a, 0)?, &[1.0, 2.0, 3.0, NAN]);
        let order = argpartition(&a, 2, 0)?.to_vec::<u32>()?;
        assert_eq!(order[2..], [2, 1], "{order:?}");
        close(&cumsum(&a, 0)?, &[1.0, NAN, NAN, NAN]);
        let rows = array(&[1.0, NAN, 5.0, 5.0], &[2, 2]);
        close(&softmax(&rows)?, &[NAN, NAN, 0.5, 0.5]);
        let nothing = array(&[f32::NEG_INFINITY; 2], &[1, 2]);
        close(&softmax(&nothing)?, &[NAN, NAN]);
        close(&layer_norm(&rows, None, None, 1e-5)?, &[NAN, NAN, 0.0, 0.0]);
        let ones = array(&[1.0f32; 2], &[2]);
        close(&rms_norm(&rows, &ones, 0.0)?, &[NAN, NAN, 1.0, 1.0]);
        let compare = |how: fn(&Array, &Array) -> Result<Array>| how(&a, &a)?.to_vec::<bool>();
        assert_eq!(compare(equal)?, [true, false, true, true]);
        assert_eq!(compare(not_equal)?, [false, true, false, false]);
        assert_eq!(compare(less_equal)?, [true, false, true, true]);
        assert_eq!(compare(greater_equal)?, [true, false, true, true]);
        assert_eq!(compare(less)?, [false; 4]);
        assert_eq!(compare(greater)?, [false; 4]);
        // The group with the NaN has unspecified numbers; the other group is right.
        let mut weights = [1.0f32; 64];
        weights[3] = NAN;
        let w = quantize(&array(&weights, &[1, 64]), Quantization::affine(4, 32)?)?;
        let back = dequantize(&w)?.to_vec::<f32>()?;
        assert_eq!(back[32..], [1.0; 32]);
        // An unspecified number, but no crash.
        for rows in 1..3 {
            let logits = array(&[NAN, 0.0, NAN].repeat(rows), &[rows, 3]);
            random::categorical(&logits, &random::key(3)?)?.evaluate()?;
        }
        Ok(())
    });
}

/// The kernels for half precision differ from those for float32.
#[test]
fn nan_is_the_largest_of_every_float() {
    on_all(|_| {
        let a = array(&[1.0, NAN, f32::INFINITY, -2.0], &[4]);
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let a = as_type(&a, dtype)?;
            assert_eq!(argmax(&a)?.to_vec::<u32>()?, [1], "{dtype}");
            close(&sort(&a, 0)?, &[-2.0, 1.0, f32::INFINITY, NAN]);
        }
        Ok(())
    });
}

/// A GPU has kernels for heads of 64; attention over other heads is computed by several kernels.
#[test]
fn a_nan_in_attention_stays_where_it_is_seen() {
    on_all(|_| {
        for dims in [64, 8] {
            let (heads, positions) = (2, 3);
            let with = |value: f32, at: Option<usize>, count: usize| {
                let mut values = vec![value; count * dims];
                if let Some(at) = at {
                    values[at] = NAN;
                }
                values
            };
            let attend = |q: Option<usize>, k: Option<usize>, v: Option<usize>, mask: Mask<'_>| {
                let q = array(&with(0.0, q, heads), &[1, heads, 1, dims]);
                let k = array(&with(1.0, k, positions), &[1, 1, positions, dims]);
                let v = array(&with(5.0, v, positions), &[1, 1, positions, dims]);
                attention(&q, &k, &v, 1.0, mask, None)?.to_vec::<f32>()
            };
            let bits =
                |values: &[f32]| -> Vec<bool> { values.iter().map(|v| v.is_nan()).collect() };
            let both = attend(None, None, None, Mask::None)?;
            assert!(both.iter().all(|v| (v - 5.0).abs() < 1e-4), "{both:?}");
            let first = attend(Some(3), None, None, Mask::None)?;
            assert_eq!(bits(&first), [vec![true; dims], vec![false; dims]].concat());
            let all = attend(None, Some(dims), None, Mask::None)?;
            assert_eq!(bits(&all), vec![true; 2 * dims]);
            let one = attend(None, None, Some(dims + 1), Mask::None)?;
            let mut expected = vec![false; 2 * dims];
            (expected[1], expected[dims + 1]) = (true, true);
            assert_eq!(bits(&one), expected);
            let unseen = array(&[true, false, true], &[1, 3]);
            let none = attend(None, Some(dims), None, Mask::Array(&unseen))?;
            assert_eq!(bits(&none), vec![false; 2 * dims], "{dims}");
        }
        Ok(())
    });
}

#[test]
fn numbers_are_ordered() {
    on_all(|_| {
        // Long enough for the kernels that sort in several passes.
        let count = 5000;
        let mut values: Vec<i32> = (0..count).map(|i| (i * 7919) % 5003 - 2500).collect();
        let a = array(&values, &[count as usize]);
        let kth = 137;
        let order = argpartition(&a, kth, 0)?.to_vec::<u32>()?;
        let at = |i: usize| values[order[i] as usize];
        assert!((0..kth).all(|i| at(i) <= at(kth)));
        assert!((kth..count as usize).all(|i| at(i) >= at(kth)));
        let mut seen = order.clone();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..count as u32));
        values.sort_unstable();
        assert_eq!(sort(&a, 0)?.to_vec::<i32>()?, values);
        let sums = cumsum(&a, 0)?.to_vec::<i32>()?;
        assert_eq!(sums.last(), Some(&values.iter().sum()));
        Ok(())
    });
    let a = array(&[1.0f32; 6], &[2, 3]);
    let error = argpartition(&a, 3, -1).unwrap_err().to_string();
    assert_eq!(
        error,
        "the array has shape [2, 3], expected more than 3 entries along dimension 1"
    );
}

/// The stride of a dimension with one entry means nothing, and may be larger than the array.
#[test]
fn a_dimension_with_one_entry_is_summed_and_sorted_as_others() {
    on_all(|_| {
        let values: Vec<f32> = (0..55).map(|i| i as f32).collect();
        let part = slice(&transpose(&array(&values, &[5, 11]))?, &[2..5, 1..2])?;
        let expected = [13.0, 14.0, 15.0];
        assert_eq!(part.to_vec::<f32>()?, expected);
        for axis in [1, -1] {
            assert_eq!(cumsum(&part, axis)?.to_vec::<f32>()?, expected);
            assert_eq!(sort(&part, axis)?.to_vec::<f32>()?, expected);
            assert_eq!(argpartition(&part, 0, axis)?.to_vec::<u32>()?, [0; 3]);
            close(&softmax_along(&part, axis)?, &[1.0; 3]);
        }
        Ok(())
    });
}

/// MLX reads wherever an index points.
#[test]
fn indices_on_the_device_stay_within_the_array() {
    on_all(|_| {
        let a = array(&[0, 1, 2, 3, 4, 5], &[3, 2]);
        let rows = |ids: &Array| take(&a, ids, 0)?.to_vec::<i32>();
        let second = [2, 3];
        let (first, last) = ([0, 1], [4, 5]);
        assert_eq!(rows(&array(&[1u32], &[1]))?, second);
        assert_eq!(rows(&array(&[u32::MAX], &[1]))?, last);
        assert_eq!(
            rows(&array(&[3u64, u64::MAX], &[2]))?,
            [last, last].concat()
        );
        assert_eq!(rows(&array(&[u8::MAX, 1], &[2]))?, [last, second].concat());
        assert_eq!(
            rows(&array(&[-1i32, -3, -4, i32::MIN, i32::MAX], &[5]))?,
            [last, first, first, first, last].concat()
        );
        assert_eq!(
            rows(&array(&[-1i64, i64::MIN, i64::MAX], &[3]))?,
            [last, first, last].concat()
        );
        assert_eq!(
            rows(&array(&[-2i8, i8::MIN], &[2]))?,
            [second, first].concat()
        );
        // More entries than the index type can count.
        let long = Array::full(&[300, 1], 1i32)?;
        assert_eq!(
            take(&long, &array(&[-128i8, 127], &[2]), 0)?.to_vec::<i32>()?,
            [1, 1]
        );
        assert_eq!(
            take(&long, &array(&[255u8], &[1]), 0)?.to_vec::<i32>()?,
            [1]
        );
        // The dimensions of the indices replace the indexed one.
        let ids = array(&[0u32, 1, 1, 0], &[2, 2]);
        let taken = take(&a, &ids, 1)?;
        assert_eq!(taken.shape(), [3, 2, 2]);
        assert_eq!(taken.to_vec::<i32>()?, [0, 1, 1, 0, 2, 3, 3, 2, 4, 5, 5, 4]);
        Ok(())
    });
    let a = array(&[1.0f32; 4], &[2, 2]);
    for ids in [array(&[1.0f32], &[1]), array(&[true], &[1])] {
        assert!(matches!(take(&a, &ids, 0), Err(Error::Dtype { .. })));
    }
}

#[test]
fn arrays_are_joined_where_they_fit() {
    let a = array(&[1.0f32; 6], &[2, 3]);
    for other in [
        array(&[1.0f32; 3], &[3]),
        array(&[1.0f32; 6], &[1, 2, 3]),
        array(&[1.0f32; 8], &[2, 4]),
    ] {
        let error = concatenate(&[&a, &other], 0).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
    }
    on_all(|_| {
        let (a, b) = (array(&[1.5f32], &[1]), array(&[2u8, 3], &[2]));
        assert_eq!(
            concatenate(&[&a, &b, &a], 0)?.to_vec::<f32>()?,
            [1.5, 2.0, 3.0, 1.5]
        );
        Ok(())
    });
}

/// `sorted` is a promise. If it is broken, results may be wrong, but nothing else may happen.
#[test]
fn gathers_are_products_of_what_they_pick() {
    on_all(|_| {
        let (experts, n, k, tokens) = (4, 32, 64, 24);
        let value = |i: usize| ((i * 37) % 11) as f32 - 5.0;
        let w: Vec<f32> = (0..experts * n * k).map(value).collect();
        let x: Vec<f32> = (0..tokens * k).map(|i| value(i + 3)).collect();
        let rows = array(&x, &[tokens, 1, k]);
        let product = |token: usize, expert: usize| -> Vec<f32> {
            let x = &x[token * k..][..k];
            let rows = w[expert * n * k..][..n * k].chunks(k);
            rows.map(|w| x.iter().zip(w).map(|(x, w)| x * w).sum())
                .collect()
        };
        let unsorted: Vec<u32> = (0..tokens as u32).map(|i| (i * 7) % 4).collect();
        let mut ascending = unsorted.clone();
        ascending.sort_unstable();
        let dense = array(&w, &[experts, n, k]);
        let dense = mlx_overlay::transpose_axes(&dense, &[0, 2, 1])?;
        let quantized =
            quantize_experts(&array(&w, &[experts, n, k]), Quantization::affine(8, 64)?)?;
        for (ids, sorted) in [(&unsorted, false), (&ascending, true)] {
            let expected: Vec<f32> = ids
                .iter()
                .enumerate()
                .flat_map(|(token, &expert)| product(token, expert as usize))
                .collect();
            let picks = array(ids, &[tokens]);
            let found = gather_matmul(&rows, &dense, None, &picks, sorted)?;
            assert_eq!(found.shape(), [tokens, 1, n]);
            close(&found, &expected);
            let found = gather_quantized_matmul(&rows, &quantized, None, &picks, sorted)?;
            let found = found.to_vec::<f32>()?;
            for (found, expected) in found.iter().zip(&expected) {
                // Each weight is off by at most half a step; 255 steps span a group's range of 10. An input is exact and at
                // most 5.
                let bound = k as f32 * 5.0 * 0.51 * 10.0 / 255.0;
                assert!((found - expected).abs() < bound, "{found} for {expected}");
            }
        }
        // An index past the end, and a broken promise: unspecified numbers.
        let wild = array(&vec![u32::MAX; tokens], &[tokens]);
        let last: Vec<f32> = (0..tokens).flat_map(|token| product(token, 3)).collect();
        close(&gather_matmul(&rows, &dense, None, &wild, false)?, &last);
        close(
            &gather_matmul(&rows, &dense, Some(&wild), &wild, false)?,
            &product(tokens - 1, 3).repeat(tokens),
        );
        let picks = array(&unsorted, &[tokens]);
        gather_matmul(&rows, &dense, None, &picks, true)?.evaluate()?;
        gather_quantized_matmul(&rows, &quantized, None, &picks, true)?.evaluate()?;
        gather_quantized_matmul(&rows, &quantized, None, &wild, true)?.evaluate()?;
        Ok(())
    });
    let x = array(&[1.0f32; 4], &[1, 2, 2]);
    let ids = array(&[0i32], &[1]);
    let error = gather_matmul(&x, &x, None, &ids, false).unwrap_err();
    assert!(matches!(error, Error::Dtype { .. }), "{error}");
    let ids = array(&[0u32; 3], &[3]);
    let two = array(&[1.0f32; 8], &[2, 2, 2]);
    let error = gather_matmul(&two, &x, None, &ids, false).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
    let flat = array(&[1.0f32; 2], &[2]);
    let error = gather_matmul(&flat, &x, None, &ids, false).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
}

#[test]
fn rows_are_normalized() {
    on_all(|_| {
        let x = array(&[1.0f32, 2.0, 3.0, 4.0, 4.0, 4.0], &[2, 3]);
        let deviation = (2.0f32 / 3.0).sqrt();
        let (w, b) = (array(&[2.0f32; 3], &[3]), array(&[1.0f32, 0.0, 0.0], &[3]));
        close(
            &layer_norm(&x, Some(&w), Some(&b), 0.0)?,
            &[1.0 - 2.0 / deviation, 0.0, 2.0 / deviation, NAN, NAN, NAN],
        );
        // `eps` prevents division by 0, and counts.
        let eps = 0.5;
        let deviation = (2.0f32 / 3.0 + eps).sqrt();
        close(
            &layer_norm(&x, None, None, eps)?,
            &[-1.0 / deviation, 0.0, 1.0 / deviation, 0.0, 0.0, 0.0],
        );
        let mean = (14.0f32 / 3.0 + eps).sqrt();
        let equal = 4.0 / (16.0 + eps).sqrt();
        close(
            &rms_norm(&x, &array(&[1.0f32; 3], &[3]), eps)?,
            &[1.0 / mean, 2.0 / mean, 3.0 / mean, equal, equal, equal],
        );
        Ok(())
    });
}

/// Positions, frequencies and scaling, each compared with the plain rope of the same angle.
#[test]
fn every_way_to_rotate_is_the_plain_one_of_its_angle() {
    on_all(|_| {
        let values: Vec<f32> = (0..3 * 2 * 2 * 8).map(|i| (i % 13) as f32 - 6.0).collect();
        let x = array(&values, &[3, 2, 2, 8]);
        let plain = Rope {
            dims: 8,
            base: 100.0,
        };
        let one = |sequence: usize, offset: usize| -> Result<Vec<f32>> {
            let part = slice(&x, &[sequence..sequence + 1, 0..2, 0..2, 0..8])?;
            rope(&part, plain, offset)?.to_vec::<f32>()
        };
        let expected = [one(0, 7)?, one(1, 0)?, one(2, 1000)?].concat();
        let options = RopeOptions::new(8, Frequencies::Base(100.0));
        for offsets in [
            array(&[7i32, 0, 1000], &[3]),
            array(&[7u32, 0, 1000], &[3]),
            array(&[7i64, 0, 1000], &[3]),
            array(&[7u16, 0, 1000], &[3]),
        ] {
            let found = rope_with(&x, &options, Positions::Each(&offsets))?;
            close(&found, &expected);
        }
        let periods: Vec<f32> = (0..4).map(|i| 100f32.powf(i as f32 / 4.0)).collect();
        let periods = array(&periods, &[4]);
        let by_periods = RopeOptions::new(8, Frequencies::Periods(&periods));
        close(
            &rope_with(&x, &by_periods, Positions::From(3))?,
            &rope(&x, plain, 3)?.to_vec::<f32>()?,
        );
        // Half the scale, twice the distance: position 3 equals position 6.
        let single = slice(&x, &[0..3, 0..2, 0..1, 0..8])?;
        let mut scaled = options.clone();
        scaled.scale = 0.5;
        close(
            &rope_with(&single, &scaled, Positions::From(6))?,
            &rope(&single, plain, 3)?.to_vec::<f32>()?,
        );
        let pair = array(&[1.0f32, 2.0], &[1, 1, 2]);
        let mut beside = RopeOptions::new(2, Frequencies::Base(1.0));
        beside.side_by_side = true;
        let (sin, cos) = 1f32.sin_cos();
        close(
            &rope_with(&pair, &beside, Positions::From(1))?,
            &[cos - 2.0 * sin, sin + 2.0 * cos],
        );
        Ok(())
    });
    let x = Array::zeros(&[2, 1, 1, 4], Dtype::F32).unwrap();
    let options = RopeOptions::new(4, Frequencies::Base(1.0));
    let wrong = array(&[1i32; 3], &[3]);
    let error = rope_with(&x, &options, Positions::Each(&wrong)).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
    let floats = array(&[1.0f32; 2], &[2]);
    let error = rope_with(&x, &options, Positions::Each(&floats)).unwrap_err();
    assert!(matches!(error, Error::Dtype { .. }), "{error}");
    let periods = RopeOptions::new(4, Frequencies::Periods(&x));
    let error = rope_with(&x, &periods, Positions::From(0)).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
    let error = rope_with(&x, &options, Positions::From(1 << 31)).unwrap_err();
    assert!(matches!(error, Error::Position { .. }), "{error}");
}

#[test]
fn masks_of_bool_say_what_is_seen() {
    on_all(|_| {
        let q = array(&[0.0f32; 2 * 64], &[1, 2, 1, 64]);
        let k = array(&[1.0f32; 3 * 64], &[1, 1, 3, 64]);
        let v: Vec<f32> = [3.0, 6.0, 9.0].iter().flat_map(|&v| [v; 64]).collect();
        let v = array(&v, &[1, 1, 3, 64]);
        let see = |mask: &[bool], shape: &[usize]| {
            let mask = array(mask, shape);
            attention(&q, &k, &v, 1.0, Mask::Array(&mask), None)?.to_vec::<f32>()
        };
        let heads = see(&[true, false, true, false, true, false], &[2, 1, 3])?;
        assert_eq!((heads[0], heads[64]), (6.0, 6.0));
        let heads = see(&[true, true, false], &[3])?;
        assert_eq!((heads[0], heads[64]), (4.5, 4.5));
        // No weight in the sink: the mean of the visible values and of zero.
        let sinks = array(&[0.0f32, f32::NEG_INFINITY], &[2]);
        let first = array(&[true, false, false], &[3]);
        let heads = attention(&q, &k, &v, 1.0, Mask::Array(&first), Some(&sinks))?;
        let heads = heads.to_vec::<f32>()?;
        assert_eq!((heads[0], heads[64]), (1.5, 3.0));
        Ok(())
    });
    let q = Array::zeros(&[1, 2, 1, 4], Dtype::F32).unwrap();
    for (mask, shape) in [(Dtype::Bool, &[2][..]), (Dtype::F32, &[1, 1, 1, 1, 1])] {
        let mask = Array::zeros(shape, mask).unwrap();
        let error = attention(&q, &q, &q, 1.0, Mask::Array(&mask), None).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
    }
    let ids = array(&[1u32], &[1]);
    let error = attention(&q, &q, &q, 1.0, Mask::Array(&ids), None).unwrap_err();
    assert!(matches!(error, Error::Dtype { .. }), "{error}");
}

#[test]
fn what_is_drawn_follows_the_key_and_the_odds() {
    on_all(|_| {
        let key = random::key(42)?;
        let draw =
            |key: &Array| random::uniform(&[64], -1.0, 1.0, Dtype::F32, key)?.to_vec::<f32>();
        let numbers = draw(&key)?;
        assert_eq!(numbers, draw(&key)?);
        assert!(numbers.iter().all(|x| (-1.0..1.0).contains(x)));
        let keys = random::split(&key, 3)?;
        assert_eq!(keys.shape(), [3, 2]);
        let second = reshape(&slice(&keys, &[1..2, 0..2])?, &[2])?;
        assert_ne!(numbers, draw(&second)?);
        // Probabilities of one to three.
        let rows = 4000;
        let logits: Vec<f32> = [0.0, 3f32.ln(), f32::NEG_INFINITY].repeat(rows);
        let drawn = random::categorical(&array(&logits, &[rows, 3]), &key)?;
        assert_eq!(drawn.shape(), [rows]);
        let drawn = drawn.to_vec::<u32>()?;
        assert!(!drawn.contains(&2));
        let ones = drawn.iter().filter(|&&index| index == 1).count();
        // Six standard deviations of a binomial distribution.
        let deviation = (rows as f64 * 0.75 * 0.25).sqrt();
        assert!(
            (ones as f64 - 0.75 * rows as f64).abs() < 6.0 * deviation,
            "{ones} of {rows}"
        );
        Ok(())
    });
    // A single row, which MLX computes differently: one to three, with many keys.
    on_all(|_| {
        let draws = 400;
        let keys = random::split(&random::key(9)?, draws)?;
        let odds = |logits: [f32; 3]| -> Result<[usize; 3]> {
            let logits = array(&logits, &[1, 3]);
            let mut counts = [0; 3];
            for i in 0..draws {
                let key = reshape(&slice(&keys, &[i..i + 1, 0..2])?, &[2])?;
                let drawn = random::categorical(&logits, &key)?;
                assert_eq!(drawn.shape(), [1]);
                counts[drawn.to_vec::<u32>()?[0] as usize] += 1;
            }
            Ok(counts)
        };
        let never = f32::NEG_INFINITY;
        let deviation = (draws as f64 * 0.75 * 0.25).sqrt();
        for (logits, three) in [
            ([0.0, 3f32.ln(), never], 1),
            ([3f32.ln(), never, 0.0], 0),
            ([never, 0.0, 3f32.ln()], 2),
        ] {
            let counts = odds(logits)?;
            let masked = logits.iter().position(|&logit| logit == never).unwrap();
            assert_eq!(counts[masked], 0, "{counts:?}");
            let off = counts[three] as f64 - 0.75 * draws as f64;
            assert!(off.abs() < 6.0 * deviation, "{counts:?}");
        }
        Ok(())
    });
    // The same on every device.
    let drawn = devices().into_iter().map(|device| {
        let work =
            || random::uniform(&[8], 0.0, 1.0, Dtype::F32, &random::key(1)?)?.to_vec::<f32>();
        Stream::default_of(device).unwrap().scope(work).unwrap()
    });
    let drawn: Vec<_> = drawn.collect();
    assert!(drawn.windows(2).all(|two| two[0] == two[1]), "{drawn:?}");
    let no_key = array(&[1u32; 3], &[3]);
    let logits = array(&[1.0f32; 3], &[3]);
    for result in [
        random::split(&no_key, 2),
        random::categorical(&logits, &no_key),
        random::uniform(&[2], 0.0, 1.0, Dtype::F32, &no_key),
    ] {
        assert!(matches!(result, Err(Error::Shape { .. })));
    }
    let key = random::key(1).unwrap();
    let error = random::uniform(&[2], 0.0, 1.0, Dtype::I32, &key).unwrap_err();
    assert!(matches!(error, Error::Dtype { .. }), "{error}");
}

/// Floats win over integers of any width.
#[test]
fn types_are_promoted_as_is_said() {
    let one = |dtype| Array::zeros(&[1], dtype).unwrap();
    for (a, b, expected) in [
        (Dtype::I64, Dtype::F16, Dtype::F16),
        (Dtype::F16, Dtype::Bf16, Dtype::F32),
        (Dtype::U64, Dtype::I64, Dtype::F32),
        (Dtype::U32, Dtype::I32, Dtype::I64),
        (Dtype::U16, Dtype::I8, Dtype::I32),
        (Dtype::U8, Dtype::I64, Dtype::I64),
        (Dtype::Bool, Dtype::U8, Dtype::U8),
    ] {
        assert_eq!(
            mlx_overlay::add(&one(a), &one(b)).unwrap().dtype(),
            expected,
            "{a} {b}"
        );
    }
    // A token id that f16 cannot represent.
    let token = array(&[32_001u32], &[1]);
    let half = mlx_overlay::add(&token, &one(Dtype::F16)).unwrap();
    assert_ne!(
        half.to_vec::<mlx_overlay::f16>().unwrap()[0].to_f32(),
        32_001.0
    );
    let whole = mlx_overlay::add(&token, &one(Dtype::I32)).unwrap();
    assert_eq!(whole.to_vec::<i64>().unwrap(), [32_001]);
}

#[test]
fn what_mlx_cannot_count_or_compute_is_refused() {
    let error = Array::zeros(&[1 << 20; 4], Dtype::U8).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    assert!(error.to_string().ends_with("below 2^64"), "{error}");
    let x = Array::zeros(&[1, 1, 1, 8], Dtype::F32).unwrap();
    let rope = mlx_overlay::Rope {
        dims: 8,
        base: 10_000.0,
    };
    let error = mlx_overlay::rope(&x, rope, 1 << 31).unwrap_err();
    assert_eq!(error, Error::Position { position: 1 << 31 });

    if !mlx_overlay::Device::Cpu.is_available().unwrap() {
        return;
    }
    let cpu = mlx_overlay::Stream::default_of(mlx_overlay::Device::Cpu).unwrap();
    let work = || {
        let half = Array::zeros(&[1, 1, 2], Dtype::F16)?;
        let w = Array::zeros(&[1, 2, 1], Dtype::F16)?;
        let ids = array(&[0u32], &[1]);
        let error = gather_matmul(&half, &w, None, &ids, false).unwrap_err();
        assert!(matches!(error, Error::Dtype { .. }), "{error}");
        // The scores would need 4 TiB; the CPU's allocator returns null.
        let q = Array::zeros(&[1, 1, 1 << 20, 1], Dtype::F32)?;
        let error = mlx_overlay::attention(&q, &q, &q, 1.0, mlx_overlay::Mask::None, None);
        assert!(matches!(error.unwrap_err(), Error::OutOfMemory { bytes } if bytes == 1 << 42));
        Ok::<_, Error>(())
    };
    cpu.scope(work).unwrap();
}
