//! The same products on the GPU, real or simulated. Without one, every test is listed as ignored.

mod support;

use libtest_mimic::{Arguments, Failed, Trial};
use mlx_overlay::{
    Array, Device, Error, Quantization, Stream, build_info, dequantize, matmul, quantize,
    quantized_matmul,
};
use support::rounding;

fn main() {
    let mut arguments = Arguments::from_args();
    let missing = match build_info() {
        Ok(info) if info.metal_available => None,
        Ok(info) => Some(format!("back-end {} has no GPU here", info.backend)),
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = &missing {
        eprintln!("GPU tests are ignored: {why}");
    }
    let trial = |name: &str, test: fn() -> Result<(), Error>| {
        Trial::test(name, move || on_gpu(test)).with_ignored_flag(missing.is_some())
    };
    let tests = vec![
        trial("products_match_the_cpu", products_match_the_cpu),
        trial("devices_can_be_mixed", devices_can_be_mixed),
    ];
    // Without the hardware, they stay ignored with `--include-ignored`.
    arguments.include_ignored &= missing.is_none();
    libtest_mimic::run(&arguments, tests).exit();
}

fn on_gpu(test: fn() -> Result<(), Error>) -> Result<(), Failed> {
    Ok(Stream::default_of(Device::Gpu)?.scope(test)?)
}

fn values(count: usize) -> Vec<f32> {
    (0..count)
        .map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0)
        .collect()
}

fn products_match_the_cpu() -> Result<(), Error> {
    for bits in [4, 8] {
        let (m, n, k) = (3, 64, 512);
        let values_of_x = values(m * k);
        let x = Array::from_slice(&values_of_x, &[m, k])?;
        let w = quantize(
            &Array::from_slice(&values(n * k), &[n, k])?,
            Quantization::affine(bits, 64)?,
        )?;
        let gpu = quantized_matmul(&x, &w)?.to_vec::<f32>()?;
        let cpu =
            Stream::default_of(Device::Cpu)?.scope(|| quantized_matmul(&x, &w)?.to_vec::<f32>())?;
        let dense = dequantize(&w)?.to_vec::<f32>()?;
        for (index, (&gpu, &cpu)) in gpu.iter().zip(&cpu).enumerate() {
            let (x, w) = (
                &values_of_x[index / n * k..][..k],
                &dense[index % n * k..][..k],
            );
            // Both round.
            let error = f64::from(gpu - cpu).abs();
            assert!(
                error <= 2.0 * rounding(x, w),
                "{bits} bits: {gpu} for {cpu}"
            );
        }
    }
    Ok(())
}

fn devices_can_be_mixed() -> Result<(), Error> {
    let a = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    let there = Stream::default_of(Device::Cpu)?.scope(|| matmul(&a, &a))?;
    assert_eq!(
        matmul(&there, &a)?.to_vec::<f32>()?,
        [37.0, 54.0, 81.0, 118.0]
    );
    Ok(())
}
