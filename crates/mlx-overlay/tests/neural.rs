//! Transformer operations other than products, compared with plain arithmetic, and the arguments that they reject.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use mlx_overlay::{
    Array, Device, Dtype, Error, Mask, Quantization, QuantizedMatrix, Rope, Stream, add, addmm,
    argmax, as_type, attention, dequantize, multiply, quantize, quantized_matmul, reshape,
    rms_norm, rope, sigmoid, slice, slice_update, softmax, take_rows, transpose_axes,
};

/// `gpu.rs` and `mlx-lab` do the same on the other back-end.
fn on_cpu(work: impl FnOnce() -> Result<(), Error>) {
    let cpu = Stream::default_of(Device::Cpu).unwrap();
    cpu.scope(work).unwrap();
}

fn array(values: &[f32], shape: &[usize]) -> Array {
    Array::from_slice(values, shape).unwrap()
}

/// 0, 1, 2 and so on.
fn counted(shape: &[usize]) -> Array {
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|i: usize| i as f32)
        .collect();
    array(&values, shape)
}

fn close(found: &Array, expected: &[f32]) {
    let found = found.to_vec::<f32>().unwrap();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-5, "{found} for {expected}");
    }
}

#[test]
fn shapes_change_and_elements_stay() {
    on_cpu(|| {
        let a = counted(&[2, 3]);
        assert_eq!(
            reshape(&a, &[3, 2])?.to_vec::<f32>()?,
            [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        );
        let turned = transpose_axes(&counted(&[1, 2, 3]), &[2, 0, 1])?;
        assert_eq!(turned.shape(), [3, 1, 2]);
        assert_eq!(turned.to_vec::<f32>()?, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let part = slice(&a, &[0..2, 1..3])?;
        assert_eq!(part.to_vec::<f32>()?, [1.0, 2.0, 4.0, 5.0]);
        let written = slice_update(&a, &array(&[9.0, 8.0], &[2, 1]), &[0..2, 2..3])?;
        assert_eq!(written.to_vec::<f32>()?, [0.0, 1.0, 9.0, 3.0, 4.0, 8.0]);
        assert_eq!(a.to_vec::<f32>()?[2], 2.0, "the old array is unchanged");
        let rows = take_rows(&a, &[1, 1, 0])?;
        assert_eq!(
            rows.to_vec::<f32>()?,
            [3.0, 4.0, 5.0, 3.0, 4.0, 5.0, 0.0, 1.0, 2.0]
        );
        assert_eq!(as_type(&a, Dtype::Bf16)?.dtype(), Dtype::Bf16);
        Ok(())
    });
}

#[test]
fn arithmetic_is_element_by_element() {
    on_cpu(|| {
        let a = array(&[1.0, -2.0, 3.0, 0.5], &[2, 2]);
        let row = array(&[10.0, 100.0], &[2]);
        close(&add(&a, &row)?, &[11.0, 98.0, 13.0, 100.5]);
        close(&multiply(&a, &row)?, &[10.0, -200.0, 30.0, 50.0]);
        let logistic = |x: f32| 1.0 / (1.0 + (-x).exp());
        close(&sigmoid(&a)?, &[1.0, -2.0, 3.0, 0.5].map(logistic));
        assert_eq!(argmax(&a)?.to_vec::<u32>()?, [0, 0]);
        assert_eq!(
            argmax(&array(&[2.0, 7.0, 7.0], &[3]))?.to_vec::<u32>()?,
            [1]
        );
        let norm = rms_norm(&array(&[3.0, 4.0], &[1, 2]), &array(&[1.0, 2.0], &[2]), 0.0)?;
        let root = 12.5f32.sqrt();
        close(&norm, &[3.0 / root, 8.0 / root]);
        Ok(())
    });
}

#[test]
fn positions_rotate_halves_against_each_other() {
    on_cpu(|| {
        let x = array(&[1.0, 2.0, 3.0, 4.0], &[1, 1, 1, 4]);
        let how = Rope {
            dims: 4,
            base: 10_000.0,
        };
        close(&rope(&x, how, 0)?, &[1.0, 2.0, 3.0, 4.0]);
        let (a, b) = (3.0f32, 3.0f32 / 100.0);
        let expected = [
            a.cos() - 3.0 * a.sin(),
            2.0 * b.cos() - 4.0 * b.sin(),
            3.0 * a.cos() + a.sin(),
            4.0 * b.cos() + 2.0 * b.sin(),
        ];
        close(&rope(&x, how, 3)?, &expected);
        Ok(())
    });
}

#[test]
fn a_product_is_scaled_and_added() {
    on_cpu(|| {
        let (a, b) = (array(&[1.0, 2.0], &[1, 2]), array(&[3.0, 4.0], &[2, 1]));
        close(&addmm(&array(&[1.0], &[1]), &a, &b, 0.5, 2.0)?, &[7.5]);
        close(
            &softmax(&array(&[0.0, 3.0f32.ln()], &[1, 2]))?,
            &[0.25, 0.75],
        );
        Ok(())
    });
}

#[test]
fn the_last_query_sees_everything_and_each_before_it_one_less() {
    on_cpu(|| {
        // Queries that prefer no key, so the result is the mean of the visible values.
        let q = array(&[0.0; 4], &[1, 2, 2, 1]);
        let k = counted(&[1, 1, 3, 1]);
        let v = array(&[3.0, 6.0, 9.0], &[1, 1, 3, 1]);
        close(
            &attention(&q, &k, &v, 1.0, Mask::Causal, None)?,
            &[4.5, 6.0, 4.5, 6.0],
        );
        close(&attention(&q, &k, &v, 1.0, Mask::None, None)?, &[6.0; 4]);
        let first_alone = array(&[0.0, -1e9, -1e9, 0.0, 0.0, 0.0], &[2, 3]);
        close(
            &attention(&q, &k, &v, 1.0, Mask::Array(&first_alone), None)?,
            &[3.0, 6.0, 3.0, 6.0],
        );
        // Two heads. The first sink has the weight of one key, the second that of three.
        let sinks = array(&[0.0, 3.0f32.ln()], &[2]);
        close(
            &attention(&q, &k, &v, 1.0, Mask::None, Some(&sinks))?,
            &[4.5, 4.5, 3.0, 3.0],
        );
        Ok(())
    });
}

#[test]
fn block_floats_are_quantized_and_multiplied() {
    on_cpu(|| {
        for format in [
            Quantization::Mxfp4,
            Quantization::Mxfp8,
            Quantization::Nvfp4,
        ] {
            // Values that all three formats represent exactly: the largest is 6 times a power of two.
            let values: Vec<f32> = (0..4 * 64).map(|i| (i % 3) as f32 * 3.0).collect();
            let w = quantize(&array(&values, &[4, 64]), format)?;
            assert_eq!((w.rows(), w.columns(), w.biases().is_none()), (4, 64, true));
            assert_eq!(w.scales().dtype(), Dtype::U8);
            let back = as_type(&dequantize(&w)?, Dtype::F32)?;
            assert_eq!(back.to_vec::<f32>()?, values, "{}", format.mode());
            let product = quantized_matmul(&array(&[1.0; 64], &[1, 64]), &w)?;
            let sums: Vec<f32> = values.chunks(64).map(|row| row.iter().sum()).collect();
            close(&product, &sums);
            let rows = w.take_rows(&[2, 0])?;
            close(
                &quantized_matmul(&array(&[1.0; 64], &[1, 64]), &rows)?,
                &[sums[2], sums[0]],
            );
            let again =
                QuantizedMatrix::from_parts(w.packed().clone(), w.scales().clone(), None, format)?;
            assert_eq!(again.columns(), 64);
        }
        Ok(())
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    let a = counted(&[2, 3]);
    let none = Array::from_slice::<f32>(&[], &[0, 3]).unwrap();
    let words = Array::from_slice(&[0u32; 6], &[2, 3]).unwrap();
    let text = |refused: Result<Array, Error>| refused.unwrap_err().to_string();
    assert!(matches!(reshape(&a, &[4]), Err(Error::Length { .. })));
    assert!(matches!(
        reshape(&a, &[usize::MAX, 2]),
        Err(Error::Length { .. })
    ));
    for ranges in [
        &[0..2, 0..3, 0..1][..],
        &[0..3, 0..3],
        &[0..0, 0..3],
        &[0..2, 0..4],
    ] {
        assert!(
            matches!(slice(&a, ranges), Err(Error::Shape { .. })),
            "{ranges:?}"
        );
    }
    assert!(matches!(
        slice_update(&a, &a, &[0..1, 0..3]),
        Err(Error::Shape { .. })
    ));
    assert!(matches!(
        slice_update(&a, &words, &[0..2, 0..3]),
        Err(Error::Dtype { .. })
    ));
    assert_eq!(
        text(take_rows(&a, &[0, 2])),
        "index 2 is out of range: the first dimension has 2 entries"
    );
    assert!(matches!(take_rows(&a, &[]), Err(Error::Empty { .. })));
    for refused in [
        add(&a, &none),
        multiply(&none, &a),
        argmax(&none),
        sigmoid(&none),
    ] {
        assert!(matches!(refused, Err(Error::Empty { .. })));
    }
    assert!(matches!(sigmoid(&words), Err(Error::Dtype { .. })));
    assert!(matches!(add(&a, &counted(&[2])), Err(Error::Mlx(_))));
    assert!(matches!(transpose_axes(&a, &[0, 0]), Err(Error::Mlx(_))));
    let odd = Rope { dims: 3, base: 1.0 };
    assert!(matches!(
        rope(&counted(&[1, 1, 4]), odd, 0),
        Err(Error::Shape { .. })
    ));
    let even = Rope { dims: 2, base: 1.0 };
    assert!(matches!(rope(&a, even, 0), Err(Error::Shape { .. })));
    let q = counted(&[1, 1, 2, 4]);
    assert!(matches!(
        attention(&a, &q, &q, 1.0, Mask::Causal, None),
        Err(Error::Shape { .. })
    ));
    // Three rows, two keys.
    let many = counted(&[1, 1, 3, 4]);
    let error = attention(&many, &q, &q, 1.0, Mask::Causal, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "queries has shape [1, 1, 3, 4], expected at most 2 rows, the number of keys: a causal row sees its own key and those before it"
    );
    assert!(attention(&many, &q, &q, 1.0, Mask::None, None).is_ok());
    let sinks = counted(&[2]);
    assert!(matches!(
        attention(&q, &q, &q, 1.0, Mask::Causal, Some(&sinks)),
        Err(Error::Shape { .. })
    ));
    assert!(matches!(
        attention(&q, &q, &q, 1.0, Mask::Array(&words), None),
        Err(Error::Dtype { .. })
    ));
    assert!(matches!(
        addmm(&a, &a, &words, 1.0, 1.0),
        Err(Error::Dtype { .. })
    ));
    let short = counted(&[1, 1, 1, 4]);
    assert!(matches!(
        attention(&q, &q, &short, 1.0, Mask::Causal, None),
        Err(Error::Shape { .. })
    ));
}

#[test]
fn biases_belong_to_affine_weights() {
    let packed = || Array::from_slice(&[0u32; 2 * 8], &[2, 8]).unwrap();
    let floats = counted(&[2, 1]);
    let bytes = Array::from_slice(&[127u8; 4], &[2, 2]).unwrap();
    let affine = Quantization::affine(4, 64).unwrap();
    let error = QuantizedMatrix::from_parts(packed(), floats.clone(), None, affine).unwrap_err();
    assert_eq!(
        error.to_string(),
        "affine weights need biases in addition to scales"
    );
    let mxfp4 = Quantization::Mxfp4;
    let error =
        QuantizedMatrix::from_parts(packed(), bytes.clone(), bytes.clone(), mxfp4).unwrap_err();
    assert_eq!(error.to_string(), "mxfp4 weights take no biases");
    let error = QuantizedMatrix::from_parts(packed(), floats, None, mxfp4).unwrap_err();
    assert!(matches!(
        error,
        Error::Dtype {
            argument: "scales",
            ..
        }
    ));
    assert!(QuantizedMatrix::from_parts(packed(), bytes, None, mxfp4).is_ok());
}
