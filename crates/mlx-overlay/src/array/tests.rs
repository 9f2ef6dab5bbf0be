//! Tests with failures that only the bridge's test functions can cause.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::{Device, Stream, add, argmax, matmul, slice_update};

fn array() -> Array {
    Array::from_slice(&[1.0f32, 0.0, 0.0, 2.0], &[2, 2]).unwrap()
}

/// A copy of the array whose evaluation fails on the stream's own thread.
fn failing(like: &Array, on: &Stream) -> Array {
    let stream = on.raw();
    let raw = bridge_testing::fails_when_run(like.raw().unwrap(), stream).unwrap();
    Array::computed(raw, &[like]).unwrap()
}

fn cpu() -> Stream {
    Stream::new(Device::Cpu).unwrap()
}

#[test]
fn a_failure_loses_what_depends_on_it_and_nothing_else() {
    let a = array();
    let done = matmul(&a, &a).unwrap();
    let also_done = matmul(&done, &a).unwrap();
    also_done.evaluate().unwrap();
    let pending = matmul(&a, &a).unwrap();
    let reached = matmul(&a, &a).unwrap();
    let failing = failing(&reached, &cpu());
    let behind = matmul(&failing, &a).unwrap();
    let beside = add(&behind, &behind).unwrap();

    let error = behind.to_vec::<f32>().unwrap_err();
    assert_eq!(error, Error::Mlx("failed when run".to_owned()));
    // MLX has marked them as evaluated, and would expose their memory.
    for lost in [&failing, &behind, &reached, &beside] {
        assert_eq!(lost.to_vec::<f32>().unwrap_err(), Error::Lost);
        assert_eq!(matmul(lost, &a).unwrap_err(), Error::Lost);
        assert_eq!(crate::eval([&a, lost]).unwrap_err(), Error::Lost);
    }
    // What existed before still exists, intermediate results included, and so does everything unrelated.
    assert_eq!(done.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 4.0]);
    assert_eq!(also_done.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 8.0]);
    assert_eq!(pending.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 4.0]);
}

#[test]
fn an_error_is_noticed_on_every_stream_that_had_part() {
    let a = array();
    let other = cpu();
    // MLX waits only for the stream of the first output.
    for failing_comes_first in [true, false] {
        let failing = failing(&a, &other);
        let good = cpu().scope(|| matmul(&a, &a)).unwrap();
        let mut outputs = [&good, &failing];
        if failing_comes_first {
            outputs.reverse();
        }
        let error = crate::eval(outputs).unwrap_err();
        assert_eq!(error, Error::Mlx("failed when run".to_owned()));
        assert_eq!(good.to_vec::<f32>().unwrap_err(), Error::Lost);
    }
    // The stream keeps no error.
    let next = other.scope(|| matmul(&a, &a)).unwrap();
    assert_eq!(next.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 4.0]);
}

/// Repeated, because the error can arrive before, during or after the start of the next evaluation.
#[test]
fn work_that_was_started_fails_when_it_is_waited_for() {
    let a = array();
    let (mine, yours) = (cpu(), cpu());
    for round in 0..500 {
        let kept = yours.scope(|| matmul(&a, &a)).unwrap();
        crate::async_eval([&kept]).unwrap();
        let failing = failing(&a, &mine);
        crate::async_eval([&failing]).unwrap();
        let behind = mine.scope(|| matmul(&failing, &a)).unwrap();
        let error = behind.to_vec::<f32>().unwrap_err();
        assert_eq!(error, Error::Mlx("failed when run".to_owned()));
        for lost in [&failing, &behind] {
            assert_eq!(lost.to_vec::<f32>().unwrap_err(), Error::Lost, "{round}");
        }
        assert_eq!(kept.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 4.0]);
    }
}

/// MLX throws an error of a stream once and then forgets it.
#[test]
fn an_error_that_somebody_else_was_given_is_not_forgotten() {
    let a = array();
    let stream = cpu();
    let failing = failing(&a, &stream);
    crate::async_eval([&failing]).unwrap();
    assert!(stream.synchronize().is_err());
    // The error was already returned.
    assert_eq!(stream.synchronize(), Ok(()));
    assert!(failing.to_vec::<f32>().is_err());
    assert_eq!(failing.to_vec::<f32>().unwrap_err(), Error::Lost);
}

/// MLX returns the update alone, and zeros.
#[test]
fn what_an_operation_leaves_out_is_not_taken_for_evaluated() {
    let a = array();
    let one = Array::from_slice(&[1.0f32, 2.0], &[2, 1]).unwrap();
    let stream = cpu();
    let (whole, column) = (failing(&a, &stream), failing(&one, &stream));
    let work = || Ok((slice_update(&whole, &a, &[0..2, 0..2])?, argmax(&column)?));
    let (replaced, index) = stream.scope::<_, Error>(work).unwrap();
    assert_eq!(replaced.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 2.0]);
    assert_eq!(index.to_vec::<u32>().unwrap(), [0, 0]);
    for never in [whole, column] {
        let error = never.to_vec::<f32>().unwrap_err();
        assert_eq!(error, Error::Mlx("failed when run".to_owned()));
        assert_eq!(never.to_vec::<f32>().unwrap_err(), Error::Lost);
    }
}

/// In a CPU-only build, MLX waits here for the streams of all threads, and throws their errors.
#[test]
fn clearing_the_cache_takes_no_error_of_others() {
    for clear in [crate::memory::clear_cache, || {
        crate::memory::set_cache_limit(32 << 20).map(drop)
    }] {
        let started = std::sync::Barrier::new(2);
        let cleared = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let failing = failing(&array(), &cpu());
                crate::async_eval([&failing]).unwrap();
                started.wait();
                cleared.wait();
                assert!(failing.to_vec::<f32>().is_err());
                assert_eq!(failing.to_vec::<f32>().unwrap_err(), Error::Lost);
            });
            let failing = failing(&array(), &cpu());
            crate::async_eval([&failing]).unwrap();
            started.wait();
            let result = clear();
            cleared.wait();
            assert_eq!(result, Ok(()));
            assert!(failing.to_vec::<f32>().is_err());
        });
    }
}

/// A caller that never waits gets the error when it builds on what failed.
#[test]
fn work_that_is_built_on_a_failure_is_not_started() {
    let a = array();
    let stream = cpu();
    let failing = failing(&a, &stream);
    crate::async_eval([&failing]).unwrap();
    let behind = stream.scope(|| matmul(&failing, &a)).unwrap();
    assert!(stream.synchronize().is_err());
    let error = crate::async_eval([&behind]).unwrap_err();
    assert!(matches!(error, Error::Mlx(_)), "{error}");
    assert_eq!(behind.to_vec::<f32>().unwrap_err(), Error::Lost);
    assert_eq!(failing.to_vec::<f32>().unwrap_err(), Error::Lost);
}

/// A thread that runs for long keeps nothing of finished evaluations.
#[test]
fn steps_that_are_started_one_after_another_compute_as_others() {
    let stream = cpu();
    let work = || {
        let one = Array::full(&[4], 1.0f32)?;
        let mut cache = Array::zeros(&[4], crate::Dtype::F32)?;
        for _ in 0..3000 {
            cache = add(&cache, &one)?;
            crate::async_eval([&cache])?;
        }
        cache.to_vec::<f32>()
    };
    assert_eq!(stream.scope(work).unwrap(), [3000.0; 4]);
}

#[test]
fn deep_graphs_of_states_need_no_deep_stack() {
    let small = std::thread::Builder::new().stack_size(256 << 10);
    let work = || {
        let stream = cpu();
        let deep = || {
            let mut a = Array::from_slice(&[1.0f32], &[1]).unwrap();
            for _ in 0..20_000 {
                a = add(&a, &a).unwrap();
            }
            a
        };
        drop(stream.scope(|| Ok::<_, Error>(deep())).unwrap());
        stream.scope(|| deep().evaluate()).unwrap();
    };
    small.spawn(work).unwrap().join().unwrap();
}

/// MLX keeps one error per stream: if two evaluations fail, it has one error for both.
#[test]
fn an_error_that_stands_for_two_fails_both() {
    let a = array();
    let wait_for_first: [fn(&Stream, &Array) -> Result<()>; 2] = [
        |_, first| first.evaluate().map(drop),
        |stream, _| stream.synchronize(),
    ];
    for wait in wait_for_first {
        let stream = cpu();
        let first = failing(&a, &stream);
        let second = failing(&a, &stream);
        // Long enough to be in progress when the error is returned.
        let side = 256;
        let last = stream.scope(|| {
            let identity: Vec<f32> = (0..side * side)
                .map(|i| if i % (side + 1) == 0 { 1.0 } else { 0.0 })
                .collect();
            let identity = Array::from_slice(&identity, &[side, side])?;
            let mut last = matmul(&slow_like(&second, side)?, &identity)?;
            for _ in 0..100 {
                last = matmul(&last, &identity)?;
            }
            Ok::<_, Error>(last)
        });
        let last = last.unwrap();
        crate::async_eval([&first]).unwrap();
        crate::async_eval([&last]).unwrap();
        assert!(wait(&stream, &first).is_err());
        assert!(last.to_vec::<f32>().is_err());
        assert_eq!(last.to_vec::<f32>().unwrap_err(), Error::Lost);
        // Later work is unaffected.
        let next = stream.scope(|| matmul(&a, &a)).unwrap();
        assert_eq!(next.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 4.0]);
    }
}

/// A square matrix that depends on an array.
fn slow_like(array: &Array, side: usize) -> Result<Array> {
    let first = crate::slice(array, &[0..1, 0..1])?;
    add(&Array::zeros(&[side, side], crate::Dtype::F32)?, &first)
}

/// MLX computes all results of an operation with the first one.
#[test]
fn what_was_computed_beside_another_is_not_lost_later() {
    for start in [
        |a: &Array| crate::eval([a]),
        |a: &Array| crate::async_eval([a]),
    ] {
        let w = Array::full(&[8, 64], 0.5f32).unwrap();
        let quantization = crate::Quantization::affine(4, 64).unwrap();
        let w = cpu().scope(|| crate::quantize(&w, quantization)).unwrap();
        start(w.packed()).unwrap();
        let failing = failing(&array(), &cpu());
        assert!(crate::eval([w.scales(), &failing]).is_err());
        w.scales().evaluate().unwrap();
        w.packed().evaluate().unwrap();
    }
}
