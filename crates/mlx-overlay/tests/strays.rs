//! The check before an evaluation works on graphs, with any back-end.

#![allow(clippy::unwrap_used, reason = "a test stops where something is amiss")]

use mlx_overlay::{
    Array, Device, Error, QmvPolicy, Quantization, Stream, matmul, quantize, quantized_matmul,
    transpose,
};

#[test]
fn stray_products_are_named_before_they_run() {
    let device = Device::preferred().unwrap();
    let (here, there) = (Stream::new(device).unwrap(), Stream::new(device).unwrap());
    let x = Array::from_slice(&vec![1.0f32; 2 * 64], &[2, 64]).unwrap();
    let w = Array::from_slice(&vec![0.5f32; 64 * 64], &[64, 64]).unwrap();
    let w = quantize(&w, Quantization::affine(4, 64).unwrap()).unwrap();
    let product = |x: &Array| quantized_matmul(x, &w);

    let first = here.scope(|| product(&x)).unwrap();
    assert_eq!(here.check_products([&first]), Ok(()));
    // A dense product may be anywhere; a quantized one deep in the graph is found, once.
    let second = there.scope(|| product(&first)).unwrap();
    let top = here
        .scope(|| matmul(&second, &transpose(&second)?))
        .unwrap();
    let expected = Error::Stray {
        stream: here.index(),
        products: vec![format!(
            "QuantizedMatmul [2, 64] on stream {}",
            there.index()
        )],
    };
    assert_eq!(here.check_products([&top, &top]), Err(expected.clone()));
    assert_eq!(
        expected.to_string(),
        format!(
            "quantized products are not on stream {}: QuantizedMatmul [2, 64] on stream {}",
            here.index(),
            there.index()
        )
    );
    // What has run can not go astray any more.
    second.evaluate().unwrap();
    assert_eq!(here.check_products([&top]), Ok(()));
}

#[test]
fn names_of_policies_are_read_back() {
    for policy in QmvPolicy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    let error = "fast".parse::<QmvPolicy>().unwrap_err().to_string();
    assert_eq!(
        error,
        "a policy is default, narrow, streamed or exact, found \"fast\""
    );
}
