//! Six rows times a quantized matrix: once as MLX computes it, and once so that each row has the bits that it has alone.

use std::process::ExitCode;

use mlx_overlay::{
    Array, Device, Quantization, QuantizedMatrix, Result, RowPolicy, Stream, build_info, quantize,
    quantized_matmul,
};

/// Rows of x, outputs, values per row.
const SHAPE: (usize, usize, usize) = (6, 512, 1024);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let info = build_info()?;
    println!("MLX {}, {} back-end", info.mlx_version, info.backend);
    if !info.metal_available {
        println!("no GPU, real or simulated: nothing to compare");
        return Ok(());
    }

    let (m, n, k) = SHAPE;
    let x = values(m * k, 1);
    let stream = Stream::new(Device::Gpu)?;
    let weights = stream.scope(|| {
        let weights = Array::from_slice(&values(n * k, 2), &[n, k])?;
        quantize(&weights, Quantization::affine(4, 64)?)
    })?;
    for policy in [RowPolicy::DEFAULT, RowPolicy::EXACT] {
        // The policy belongs to the stream: work built on it follows the policy, whenever it is evaluated.
        let equal = Stream::with_policy(policy)?.scope(|| rows_like_alone(&x, &weights))?;
        println!("{policy}: {equal} of {m} rows have the bits of the one-row product");
    }
    Ok(())
}

/// The number of rows of the product that are equal, bit for bit, to the product of that row alone.
fn rows_like_alone(x: &[f32], weights: &QuantizedMatrix) -> Result<usize> {
    let (m, n, k) = SHAPE;
    let product = |rows: &[f32]| -> Result<Vec<f32>> {
        let rows = Array::from_slice(rows, &[rows.len() / k, k])?;
        quantized_matmul(&rows, weights)?.to_vec()
    };
    let together = product(x)?;
    let mut equal = 0;
    for row in 0..m {
        let alone = product(&x[row * k..][..k])?;
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        equal += usize::from(bits(&together[row * n..][..n]) == bits(&alone));
    }
    Ok(equal)
}

/// Pseudo-random numbers in [-1, 1).
fn values(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}
