//! Policies on streams that other bindings made: `mlx-overlay`, which links MLX here. Without a GPU, real or simulated,
//! that follows policies, the tests are listed as ignored, except one for the errors of such an MLX.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use libtest_mimic::{Arguments, Failed, Trial};
use mlx_overlay::{Array, Device, Quantization, QuantizedMatrix, quantize, quantized_matmul};
use mlx_row_policy::{
    DispatchPlan, Error, FloatType, Format, Mode, Path, Policy, Stream, dispatch_stats,
    has_policies, process_policy, reset_dispatch_stats,
};

type Outcome = Result<(), Failed>;

const M: usize = 6;
const N: usize = 16;
const K: usize = 512;

fn main() {
    let arguments = Arguments::from_args();
    let gpu = mlx_overlay::build_info().is_ok_and(|info| info.metal_available);
    let works = gpu && mlx_overlay::has_policies();
    let trial =
        |name: &str, test: fn() -> Outcome| Trial::test(name, test).with_ignored_flag(!works);
    let tests = vec![
        trial(
            "a_stream_of_others_keeps_rows",
            a_stream_of_others_keeps_rows,
        ),
        trial(
            "a_stream_of_ours_is_one_of_theirs",
            a_stream_of_ours_is_one_of_theirs,
        ),
        trial(
            "a_policy_is_given_once_and_first",
            a_policy_is_given_once_and_first,
        ),
        trial(
            "plans_are_those_of_the_stream",
            plans_are_those_of_the_stream,
        ),
        trial("products_are_counted", products_are_counted),
        trial("a_scope_needs_mlx_c", a_scope_needs_mlx_c),
        Trial::test(
            "an_mlx_without_kernels_says_so",
            an_mlx_without_kernels_says_so,
        )
        .with_ignored_flag(mlx_overlay::has_policies()),
    ];
    // One after another, because counters belong to the process.
    let arguments = Arguments {
        test_threads: Some(1),
        include_ignored: false,
        ..arguments
    };
    libtest_mimic::run(&arguments, tests).exit();
}

fn format() -> Format {
    Format::new(Mode::Affine, 4, 64).unwrap()
}

/// Pseudorandom numbers, the same for a seed.
fn values(count: usize, seed: u32) -> Vec<f32> {
    let scramble = |i: u32| (i ^ seed).wrapping_mul(2_654_435_761) >> 8;
    (0..count as u32)
        .map(|i| scramble(scramble(i)) as f32 / (1 << 23) as f32 - 1.0)
        .collect()
}

fn weights() -> mlx_overlay::Result<QuantizedMatrix> {
    let weights = Array::from_slice(&values(N * K, 7), &[N, K])?;
    quantize(&weights, Quantization::affine(4, 64)?)
}

fn product(rows: &[f32], weights: &QuantizedMatrix) -> mlx_overlay::Result<Vec<u32>> {
    let x = Array::from_slice(rows, &[rows.len() / K, K])?;
    let y = quantized_matmul(&x, weights)?.to_vec::<f32>()?;
    Ok(y.into_iter().map(f32::to_bits).collect())
}

/// Rows of a product on a stream that have the same bits as the row alone.
fn rows_like_alone(stream: &mlx_overlay::Stream) -> mlx_overlay::Result<usize> {
    let x = values(M * K, 3);
    stream.scope(|| {
        let weights = weights()?;
        let together = product(&x, &weights)?;
        let mut equal = 0;
        for (row, together) in x.chunks(K).zip(together.chunks(N)) {
            equal += usize::from(product(row, &weights)? == together);
        }
        Ok(equal)
    })
}

fn gpu_stream() -> mlx_overlay::Result<mlx_overlay::Stream> {
    mlx_overlay::Stream::new(Device::Gpu)
}

fn a_stream_of_others_keeps_rows() -> Outcome {
    let plain = gpu_stream()?;
    assert!(rows_like_alone(&plain)? < M);

    let stream = gpu_stream()?;
    let exact = Stream::from_index(stream.index())?;
    assert_eq!(exact.policy()?, None);
    exact.set_policy(Policy::EXACT)?;
    assert_eq!(exact.policy()?, Some(Policy::EXACT));
    assert_eq!(stream.policy()?, Some(Policy::EXACT));
    assert_eq!(rows_like_alone(&stream)?, M);
    Ok(())
}

fn a_stream_of_ours_is_one_of_theirs() -> Outcome {
    let policy = Policy::NARROW.with_rows(3)?;
    let stream = Stream::with_policy(policy)?;
    assert_eq!(stream.policy()?, Some(policy));
    assert_eq!(gpu_stream()?.index(), stream.index() + 1);
    Ok(())
}

#[track_caller]
fn refused<T>(outcome: Result<T, Error>, text: &str) {
    match outcome {
        Err(Error::Mlx(why)) if why.contains(text) => {}
        Err(other) => panic!("expected `{text}`, found {other:?}"),
        Ok(_) => panic!("expected `{text}`, found no error"),
    }
}

fn a_policy_is_given_once_and_first() -> Outcome {
    assert!(has_policies()?);
    assert_eq!(process_policy()?, mlx_overlay::process_policy()?);

    let stream = Stream::from_index(gpu_stream()?.index())?;
    stream.set_policy(Policy::EXACT)?;
    refused(
        stream.set_policy(Policy::EXACT),
        "has a policy already, exact",
    );

    let used = gpu_stream()?;
    rows_like_alone(&used)?;
    let used = Stream::from_index(used.index())?;
    refused(
        used.set_policy(Policy::EXACT),
        "has computed without a policy",
    );

    for index in [-1, i32::MIN, i32::MAX, 1_000_000] {
        refused(Stream::from_index(index), &format!("no stream {index}"));
    }
    if mlx_overlay::build_info()?.cpu {
        let cpu = mlx_overlay::Stream::new(Device::Cpu)?;
        let cpu = Stream::from_index(cpu.index())?;
        refused(cpu.set_policy(Policy::EXACT), "is one of the CPU");
        cpu.set_policy(Policy::DEFAULT)?;
    }
    Ok(())
}

fn plans_are_those_of_the_stream() -> Outcome {
    let quantization = Quantization::affine(4, 64)?;
    for policy in Policy::KINDS {
        let stream = mlx_overlay::Stream::with_policy(*policy)?;
        let ours = Stream::from_index(stream.index())?;
        for m in [1, 2, 6, 9, 40] {
            for (dtype, float) in [
                (mlx_overlay::Dtype::F32, FloatType::F32),
                (mlx_overlay::Dtype::F16, FloatType::F16),
                (mlx_overlay::Dtype::Bf16, FloatType::Bf16),
            ] {
                let theirs =
                    mlx_overlay::DispatchPlan::of([m, N, K], quantization, dtype, &stream)?;
                let plan = DispatchPlan::of([m, N, K], format(), float, Some(&ours))?;
                assert_eq!(
                    (plan.policy, plan.path, plan.fast, plan.tile, plan.identical),
                    (
                        theirs.policy,
                        theirs.path,
                        theirs.fast,
                        theirs.tile,
                        theirs.identical
                    ),
                );
            }
        }
    }
    // Without a stream, the process's policy applies.
    let plan = DispatchPlan::of([M, N, K], format(), FloatType::F32, None)?;
    assert_eq!(plan.policy, process_policy()?);

    let huge = [1, usize::MAX, 512];
    let outcome = DispatchPlan::of(huge, format(), FloatType::F32, None);
    assert_eq!(outcome, Err(Error::TooLarge(huge)));
    let ragged = DispatchPlan::of([1, 8, 500], format(), FloatType::F32, None);
    assert!(matches!(ragged, Err(Error::Mlx(_))), "{ragged:?}");
    Ok(())
}

fn products_are_counted() -> Outcome {
    let stream = gpu_stream()?;
    Stream::from_index(stream.index())?.set_policy(Policy::EXACT)?;
    reset_dispatch_stats()?;
    assert_eq!(dispatch_stats()?, []);
    rows_like_alone(&stream)?;
    let counts: Vec<_> = dispatch_stats()?
        .iter()
        .map(|count| (count.path, count.fast, count.products))
        .collect();
    assert_eq!(
        counts,
        [(Path::Qmv, true, M as u64), (Path::Streamed, true, 1)]
    );
    Ok(())
}

/// `mlx-overlay` does not link mlx-c.
fn a_scope_needs_mlx_c() -> Outcome {
    let stream = Stream::with_policy(Policy::EXACT)?;
    let outcome = stream.scope(|| panic!("work is not run"));
    let Err(Error::NoMlxC { function }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(function, "mlx_get_streams");
    Ok(())
}

fn an_mlx_without_kernels_says_so() -> Outcome {
    let none = match mlx_overlay::process_policy() {
        Err(mlx_overlay::Error::NoPolicies) => Error::NoOverlay,
        _ => Error::NoKernels,
    };
    assert_eq!(dispatch_stats(), Err(none.clone()));
    assert_eq!(reset_dispatch_stats(), Err(none.clone()));
    let plan = DispatchPlan::of([1, 8, 512], format(), FloatType::F32, None);
    assert_eq!(plan, Err(none));
    Ok(())
}
