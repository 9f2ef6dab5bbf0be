//! Two threads that use mlx-rs, one on a stream with the policy `exact` and one without a policy. Counts how many rows
//! of a quantized product have the bits that they have alone.

use std::error::Error;
use std::process::ExitCode;
use std::thread;

use mlx_row_policy::{DispatchPlan, FloatType, Format, Mode, Policy, dispatch_stats};
use mlx_rs::{Array, Device, Stream, ops, with_stream};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Rows of x, outputs, values per row.
const M: usize = 6;
const N: usize = 64;
const K: usize = 512;
const GROUP_SIZE: i32 = 64;
const BITS: i32 = 4;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("error: expected all rows to keep their bits under exact, and not all without a policy");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the rows keep their bits exactly where they should.
fn run() -> Result<bool> {
    let exact = thread::spawn(|| on_stream_of_mlx_rs(Some(Policy::EXACT)));
    let plain = thread::spawn(|| on_stream_of_mlx_rs(None));
    let join = |thread: thread::JoinHandle<Result<usize>>| thread.join().expect("no panic");
    let (exact, plain) = (join(exact)?, join(plain)?);
    println!("without a policy: {plain} of {M} rows have the bits of the one-row product");
    println!("exact: {exact} of {M} rows have the bits of the one-row product");

    // A stream of this crate: mlx-rs has no constructor for it, and uses MLX's default stream.
    let narrow = mlx_row_policy::Stream::with_policy(Policy::NARROW)?;
    let scoped = narrow.scope(rows_like_alone)??;
    println!("narrow, by the scope alone: {scoped} of {M} rows");
    for count in dispatch_stats()? {
        println!("{count}: {} products", count.products);
    }
    Ok(plain < M && exact == M && scoped == M)
}

/// Computes on a stream that mlx-rs makes, with a policy if one is given.
fn on_stream_of_mlx_rs(policy: Option<Policy>) -> Result<usize> {
    let stream = Stream::new_with_device(&Device::gpu());
    let rows = mlx_row_policy::Stream::from_index(stream.get_index()?)?;
    if let Some(policy) = policy {
        rows.set_policy(policy)?;
    }
    let format = Format::new(Mode::Affine, BITS as u32, GROUP_SIZE as u32)?;
    let plan = DispatchPlan::of([M, N, K], format, FloatType::F32, Some(&rows))?;
    let equal = with_stream(&stream, || rows.scope(rows_like_alone))??;
    if plan.identical && equal != M {
        return Err(format!("{} should keep the bits of every row, but kept those of {equal}", plan.path).into());
    }
    Ok(equal)
}

/// The number of rows of a product that are equal, bit for bit, to the product of that row alone.
fn rows_like_alone() -> Result<usize> {
    let weights = Array::from_slice(&values(N * K, 2), &[N as i32, K as i32]);
    let (weights, scales, biases) = ops::quantize(&weights, GROUP_SIZE, BITS)?;
    let product = |rows: &[f32]| -> Result<Vec<u32>> {
        let x = Array::from_slice(rows, &[(rows.len() / K) as i32, K as i32]);
        let y = ops::quantized_matmul(&x, &weights, &scales, &biases, true, GROUP_SIZE, BITS)?;
        Ok(y.as_slice::<f32>()
            .iter()
            .map(|value| value.to_bits())
            .collect())
    };
    let x = values(M * K, 1);
    let together = product(&x)?;
    let mut equal = 0;
    for (row, together) in x.chunks(K).zip(together.chunks(N)) {
        equal += usize::from(product(row)? == together);
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
