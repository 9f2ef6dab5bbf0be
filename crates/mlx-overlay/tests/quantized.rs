//! Quantized products compared with a double-precision reference, and rejected arguments.

#![allow(clippy::unwrap_used)] // in helpers too

mod support;

use mlx_overlay::{
    Array, Device, Dtype, Element, Error, Quantization, QuantizedMatrix, Stream, bf16, dequantize,
    f16, matmul, quantize, quantized_matmul, transpose,
};

use support::rounding;

const BITS: [u32; 7] = [1, 2, 3, 4, 5, 6, 8];
const GROUPS: [u32; 3] = [32, 64, 128];

/// Values in [-1, 1) that look random.
fn values(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_769) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// This file tests the CPU back-end; `gpu.rs` tests the other one.
fn on_cpu(work: impl FnOnce() -> Result<(), Error>) {
    Stream::default_of(Device::Cpu)
        .unwrap()
        .scope(work)
        .unwrap();
}

#[test]
fn quantizing_is_off_by_a_step_of_its_group_at_most() {
    on_cpu(|| {
        for bits in BITS {
            for group in GROUPS {
                let w = values(4 * 256, bits * group);
                let matrix = quantize(
                    &Array::from_slice(&w, &[4, 256])?,
                    Quantization::affine(bits, group)?,
                )?;
                assert_eq!((matrix.rows(), matrix.columns()), (4, 256));
                let back = dequantize(&matrix)?;
                assert_eq!(back.shape(), [4, 256]);
                let back = back.to_vec::<f32>()?;
                let groups = w.chunks(group as usize);
                for (w, back) in groups.zip(back.chunks(group as usize)) {
                    let most = w.iter().copied().fold(f32::MIN, f32::max);
                    let least = w.iter().copied().fold(f32::MAX, f32::min);
                    let step = (most - least) / ((1 << bits) - 1) as f32;
                    // Half a step, and another half where the scale was rounded so that zero is exact. One bit maps to
                    // the ends of the range.
                    let allowed = if bits == 1 { step / 2.0 } else { step } * 1.000_01;
                    for (w, back) in w.iter().zip(back) {
                        assert!(
                            (w - back).abs() <= allowed,
                            "{bits} bits, groups of {group}: {w} became {back}"
                        );
                    }
                }
            }
        }
        Ok(())
    });
}

#[test]
fn products_match_double_precision() {
    on_cpu(|| {
        for bits in BITS {
            for group in GROUPS {
                let (m, n, k) = (3, 40, 256);
                let x = values(m * k, bits);
                let w = Array::from_slice(&values(n * k, group), &[n, k])?;
                let w = quantize(&w, Quantization::affine(bits, group)?)?;
                let product = quantized_matmul(&Array::from_slice(&x, &[m, k])?, &w)?;
                assert_eq!(product.shape(), [m, n]);
                let dense = dequantize(&w)?.to_vec::<f32>()?;
                let what = format!("{bits} bits, groups of {group}");
                assert_dense_product(&product.to_vec()?, &x, &dense, [n, k], &what);
            }
        }
        Ok(())
    });
}

/// Compares each row of x times each row of a matrix of n rows and k columns with double precision.
fn assert_dense_product(product: &[f32], x: &[f32], w: &[f32], [n, k]: [usize; 2], what: &str) {
    for (index, &y) in product.iter().enumerate() {
        let (x, w) = (&x[index / n * k..][..k], &w[index % n * k..][..k]);
        let reference: f64 = x
            .iter()
            .zip(w)
            .map(|(&x, &w)| f64::from(x) * f64::from(w))
            .sum();
        let error = (f64::from(y) - reference).abs();
        assert!(error <= rounding(x, w), "{what}: {y} for {reference}");
    }
}

#[test]
fn a_product_is_the_dense_product_of_the_dequantized_matrix() {
    on_cpu(|| {
        let (n, k) = (64, 128);
        let x = values(5 * k, 1);
        let w = quantize(
            &Array::from_slice(&values(n * k, 2), &[n, k])?,
            Quantization::affine(4, 64)?,
        )?;
        let rows = Array::from_slice(&x, &[5, k])?;
        let quantized = quantized_matmul(&rows, &w)?.to_vec::<f32>()?;
        let dense = dequantize(&w)?;
        let product = matmul(&rows, &transpose(&dense)?)?.to_vec::<f32>()?;
        assert_eq!(quantized.len(), product.len());
        let dense = dense.to_vec::<f32>()?;
        assert_dense_product(&quantized, &x, &dense, [n, k], "quantized");
        assert_dense_product(&product, &x, &dense, [n, k], "dense");
        Ok(())
    });
}

#[test]
fn fp_products_match_double_precision() {
    on_cpu(|| {
        for quantization in [
            Quantization::Mxfp4,
            Quantization::Mxfp8,
            Quantization::Nvfp4,
        ] {
            let (m, n, k) = (3, 40, 256);
            let x = values(m * k, 5);
            let dense = values(n * k, 6);
            let w = quantize(&Array::from_slice(&dense, &[n, k])?, quantization)?;
            assert_eq!(
                (w.scales().dtype(), w.biases().is_none()),
                (Dtype::U8, true)
            );
            let product = quantized_matmul(&Array::from_slice(&x, &[m, k])?, &w)?;
            assert_eq!(
                (product.shape(), product.dtype()),
                (&[m, n][..], Dtype::F32)
            );
            // bf16 represents all of these values.
            let back = dequantize(&w)?.to_vec::<bf16>()?;
            let back: Vec<f32> = back.into_iter().map(f32::from).collect();
            // In [-1, 1), where the largest step is one half.
            assert!(
                dense
                    .iter()
                    .zip(&back)
                    .all(|(w, back)| (w - back).abs() <= 0.25)
            );
            let what = format!("{quantization:?}");
            assert_dense_product(&product.to_vec()?, &x, &back, [n, k], &what);
        }
        Ok(())
    });
}

fn keeps_its_type<T: Element>(narrow: fn(f32) -> T, dtype: Dtype) -> Result<(), Error> {
    let narrowed = |count, seed| {
        values(count, seed)
            .into_iter()
            .map(narrow)
            .collect::<Vec<T>>()
    };
    let w = quantize(
        &Array::from_slice(&narrowed(8 * 64, 3), &[8, 64])?,
        Quantization::affine(4, 32)?,
    )?;
    assert_eq!(
        (
            w.packed().dtype(),
            w.scales().dtype(),
            w.biases().unwrap().dtype()
        ),
        (Dtype::U32, dtype, dtype)
    );
    let x = Array::from_slice(&narrowed(2 * 64, 4), &[2, 64])?;
    assert_eq!(quantized_matmul(&x, &w)?.dtype(), dtype);
    quantized_matmul(&x, &w)?.to_vec::<T>()?;
    // A wider x gives a wider product.
    let x = Array::from_slice(&values(2 * 64, 4), &[2, 64])?;
    quantized_matmul(&x, &w)?.to_vec::<f32>()?;
    Ok(())
}

#[test]
fn types_are_kept_and_widened() {
    on_cpu(|| {
        keeps_its_type(|value| value, Dtype::F32)?;
        keeps_its_type(f16::from_f32, Dtype::F16)?;
        keeps_its_type(bf16::from_f32, Dtype::Bf16)
    });
}

#[test]
fn rows_of_a_batch_are_their_one_row_products() {
    on_cpu(|| {
        let (n, k) = (32, 512);
        let x = values(6 * k, 7);
        let w = quantize(
            &Array::from_slice(&values(n * k, 8), &[n, k])?,
            Quantization::affine(8, 64)?,
        )?;
        let batched = quantized_matmul(&Array::from_slice(&x, &[2, 3, k])?, &w)?;
        assert_eq!(batched.shape(), [2, 3, n]);
        for (x, row) in x.chunks(k).zip(batched.to_vec::<f32>()?.chunks(n)) {
            let alone = quantized_matmul(&Array::from_slice(x, &[k])?, &w)?;
            assert_eq!(alone.shape(), [n]);
            assert_eq!(alone.to_vec::<f32>()?, row);
        }
        Ok(())
    });
}

#[test]
fn bits_and_groups_without_kernels_are_refused() {
    for (bits, group_size) in [
        (0, 64),
        (7, 64),
        (9, 64),
        (4, 0),
        (4, 16),
        (4, 256),
        (u32::MAX, u32::MAX),
    ] {
        let error = Quantization::affine(bits, group_size).unwrap_err();
        assert!(matches!(error, Error::Quantization(_)), "{error}");
        assert!(
            error.to_string().contains(" in mode affine, found "),
            "{error}"
        );
    }
}

#[test]
fn what_cannot_be_quantized_is_refused() {
    let affine = Quantization::affine(4, 64).unwrap();
    let refused = |elements: &[f32], shape: &[usize]| {
        quantize(&Array::from_slice(elements, shape).unwrap(), affine).unwrap_err()
    };
    for shape in [&[0, 64][..], &[8, 0], &[0]] {
        assert!(matches!(
            refused(&[], shape),
            Error::Empty { argument: "w", .. }
        ));
    }
    let message = refused(&[0.0; 2 * 96], &[2, 96]).to_string();
    assert_eq!(
        message,
        "w has shape [2, 96], expected [n, k] with k a multiple of 64"
    );
    assert!(matches!(refused(&[0.0; 64], &[64]), Error::Shape { .. }));
    assert!(matches!(
        refused(&[0.0; 64], &[1, 1, 64]),
        Error::Shape { .. }
    ));
    let integers = Array::from_slice(&[0u32; 64], &[1, 64]).unwrap();
    assert!(matches!(
        quantize(&integers, affine).unwrap_err(),
        Error::Dtype { .. }
    ));
}

#[test]
fn what_cannot_be_multiplied_is_refused() {
    let w = Array::from_slice(&values(8 * 64, 1), &[8, 64]).unwrap();
    let w = quantize(&w, Quantization::affine(4, 64).unwrap()).unwrap();
    let refused = |x: Array| quantized_matmul(&x, &w).unwrap_err();

    let no_rows = refused(Array::from_slice::<f32>(&[], &[0, 64]).unwrap());
    assert_eq!(
        no_rows.to_string(),
        "x has no elements: its shape is [0, 64]"
    );
    let too_short = refused(Array::from_slice(&[0.0f32; 32], &[1, 32]).unwrap());
    assert_eq!(
        too_short.to_string(),
        "x has shape [1, 32], expected [.., 64], as the matrix has 64 columns"
    );
    assert!(matches!(
        refused(Array::from_slice(&[0.0f32], &[]).unwrap()),
        Error::Shape { .. }
    ));
    assert!(matches!(
        refused(Array::from_slice(&[0u32; 64], &[1, 64]).unwrap()),
        Error::Dtype { .. }
    ));
}

#[test]
fn biases_are_for_affine_weights() {
    let packed = || Array::from_slice(&[0u32; 16], &[1, 16]).unwrap();
    let scales = || Array::from_slice(&[127u8; 4], &[1, 4]).unwrap();
    let floats = || Array::from_slice(&[0f32; 4], &[1, 4]).unwrap();
    let mxfp4 =
        |scales, biases| QuantizedMatrix::from_parts(packed(), scales, biases, Quantization::Mxfp4);
    assert_eq!(mxfp4(scales(), None).unwrap().columns(), 128);
    let error = mxfp4(scales(), Some(floats())).unwrap_err();
    assert_eq!(error.to_string(), "mxfp4 weights take no biases");
    let error = mxfp4(floats(), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "scales has elements of type f32, expected u8"
    );
    let affine = Quantization::affine(4, 32).unwrap();
    let error = QuantizedMatrix::from_parts(packed(), floats(), None, affine).unwrap_err();
    assert_eq!(
        error.to_string(),
        "affine weights need biases in addition to scales"
    );
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let affine = Quantization::affine(4, 64).unwrap();
    let packed =
        |shape: &[usize]| Array::from_slice(&vec![0u32; shape.iter().product()], shape).unwrap();
    let floats =
        |shape: &[usize]| Array::from_slice(&vec![0f32; shape.iter().product()], shape).unwrap();
    let put_together = |packed: Array, scales: Array, biases: Array| {
        QuantizedMatrix::from_parts(packed, scales, Some(biases), affine)
            .map(|w| (w.rows(), w.columns()))
    };

    assert_eq!(
        put_together(packed(&[8, 16]), floats(&[8, 2]), floats(&[8, 2])),
        Ok((8, 128))
    );
    for (packed, scales, biases, argument) in [
        (packed(&[8, 15]), floats(&[8, 2]), floats(&[8, 2]), "packed"),
        (packed(&[7, 16]), floats(&[8, 2]), floats(&[8, 2]), "packed"),
        (packed(&[128]), floats(&[8, 2]), floats(&[8, 2]), "packed"),
        (packed(&[8, 16]), floats(&[8, 2]), floats(&[8, 1]), "biases"),
        (packed(&[8, 16]), floats(&[16]), floats(&[16]), "scales"),
    ] {
        let Err(Error::Shape {
            argument: named, ..
        }) = put_together(packed, scales, biases)
        else {
            panic!("{argument} was not rejected")
        };
        assert_eq!(named, argument);
    }
    let empty = put_together(packed(&[0, 16]), floats(&[0, 2]), floats(&[0, 2]));
    assert!(matches!(empty, Err(Error::Empty { .. })));
    let not_packed = put_together(floats(&[8, 16]), floats(&[8, 2]), floats(&[8, 2]));
    assert!(matches!(
        not_packed,
        Err(Error::Dtype {
            argument: "packed",
            ..
        })
    ));
    let half = Array::from_slice(&[f16::ZERO; 16], &[8, 2]).unwrap();
    let mixed = put_together(packed(&[8, 16]), floats(&[8, 2]), half);
    assert!(matches!(
        mixed,
        Err(Error::Dtype {
            argument: "biases",
            ..
        })
    ));
}

/// MLX indexes each matrix on its own: all experts of a real model together have more elements than 2^31.
#[test]
fn experts_together_may_have_more_elements_than_one_matrix() {
    let (experts, rows, columns) = (256, 2048, 8192);
    // Nothing is computed.
    let packed = Array::zeros(&[experts, rows, columns / 32], Dtype::U32).unwrap();
    let scales = Array::zeros(&[experts, rows, columns / 128], Dtype::Bf16).unwrap();
    let one_bit = Quantization::affine(1, 128).unwrap();
    let all =
        mlx_overlay::QuantizedExperts::from_parts(packed, scales.clone(), scales, one_bit).unwrap();
    assert_eq!(
        (all.experts(), all.rows(), all.columns()),
        (experts, rows, columns)
    );
}

/// The same for experts that are quantized here.
#[test]
fn experts_that_are_quantized_are_indexed_one_by_one() {
    let mxfp8 = Quantization::Mxfp8;
    // Nothing is computed; the limit of a small machine would reject it.
    mlx_overlay::memory::set_limit(1 << 40).unwrap();
    let (experts, rows, columns) = (256, 2048, 4096);
    let many = Array::zeros(&[experts, rows, columns], Dtype::F16).unwrap();
    let all = mlx_overlay::quantize_experts(&many, mxfp8).unwrap();
    assert_eq!((all.experts(), all.rows()), (experts, rows));
    let wide = Array::zeros(&[2, 1 << 20, 1 << 11], Dtype::F16).unwrap();
    let error = mlx_overlay::quantize_experts(&wide, mxfp8).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let flat = Array::zeros(&[4, 64], Dtype::F32).unwrap();
    let error = mlx_overlay::quantize_experts(&flat, mxfp8).unwrap_err();
    assert_eq!(
        error.to_string(),
        "w has shape [4, 64], expected [experts, n, k] with k a multiple of 32"
    );
}

#[test]
fn experts_go_from_thread_to_thread() {
    let values: Vec<f32> = (0..3 * 8 * 64).map(|i| (i % 17) as f32 - 8.0).collect();
    let w = Array::from_slice(&values, &[3, 8, 64]).unwrap();
    let affine = Quantization::affine(8, 64).unwrap();
    let product = |experts: &mlx_overlay::QuantizedExperts| {
        let x = Array::full(&[2, 1, 64], 1.0f32)?;
        let ids = Array::from_slice(&[2u32, 0], &[2])?;
        mlx_overlay::gather_quantized_matmul(&x, experts, None, &ids, false)?.to_vec::<f32>()
    };
    let experts = mlx_overlay::quantize_experts(&w, affine).unwrap();
    let here = product(&experts).unwrap();
    let evaluated = experts.evaluate().unwrap();
    let there = std::thread::scope(|scope| {
        let work = || {
            let experts = evaluated.to_experts()?;
            assert_eq!(
                (experts.experts(), experts.rows(), experts.columns()),
                (3, 8, 64)
            );
            product(&experts)
        };
        scope.spawn(work).join().unwrap().unwrap()
    });
    assert_eq!(here, there);
    let sums = |expert: usize| values[expert * 8 * 64..][..8 * 64].chunks(64);
    for (found, row) in here.iter().zip(sums(2).chain(sums(0))) {
        let expected: f32 = row.iter().sum();
        assert!((found - expected).abs() < 64.0 * 0.51 * 16.0 / 255.0);
    }
}
