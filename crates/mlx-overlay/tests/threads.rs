//! Allowed uses of arrays on threads. The others do not compile: see `compile_fail.rs`.

#![allow(clippy::unwrap_used)] // in helpers too

use std::cell::RefCell;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use mlx_overlay::{Array, Device, Error, Evaluated, Stream, eval, matmul};

fn identity(scale: f32) -> Array {
    Array::from_slice(&[scale, 0.0, 0.0, scale], &[2, 2]).unwrap()
}

#[test]
fn an_evaluated_array_outlives_its_thread() {
    let evaluated = thread::spawn(|| {
        matmul(&identity(2.0), &identity(3.0))
            .unwrap()
            .evaluate()
            .unwrap()
    })
    .join()
    .unwrap();
    assert_eq!(evaluated.as_slice::<f32>().unwrap(), [6.0, 0.0, 0.0, 6.0]);
    let product = matmul(&evaluated.to_array().unwrap(), &identity(0.5)).unwrap();
    drop(evaluated);
    assert_eq!(product.to_vec::<f32>().unwrap(), [3.0, 0.0, 0.0, 3.0]);
}

#[test]
fn threads_share_weights_and_work_at_once() {
    const SIDE: usize = 32;
    let weights: Vec<f32> = (0..SIDE * SIDE).map(|i| (i % 7) as f32 - 3.0).collect();
    let weights = Arc::new(
        Array::from_slice(&weights, &[SIDE, SIDE])
            .unwrap()
            .evaluate()
            .unwrap(),
    );
    let square = |weights: &Evaluated| {
        let w = weights.to_array().unwrap();
        matmul(&w, &w).unwrap().to_vec::<f32>().unwrap()
    };
    let expected = square(&weights);
    let start = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (weights, start, expected) = (weights.clone(), start.clone(), expected.clone());
            thread::spawn(move || {
                start.wait();
                for _ in 0..200 {
                    assert_eq!(square(&weights), expected);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Rust destroys this thread's variables after MLX's if they were created first.
#[test]
fn a_call_from_an_ending_thread_is_refused() {
    struct Late {
        array: Array,
        report: mpsc::Sender<[Result<(), Error>; 3]>,
    }
    impl Drop for Late {
        fn drop(&mut self) {
            let used = matmul(&self.array, &self.array).map(drop);
            let evaluated = eval([&self.array]);
            let scoped = Stream::new(Device::Cpu).map(drop);
            self.report.send([used, evaluated, scoped]).unwrap();
        }
    }
    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }

    let (report, reports) = mpsc::channel();
    thread::spawn(move || {
        // Registers the destructor before MLX registers its own.
        LATE.with_borrow_mut(|late| *late = None);
        let array = matmul(&identity(1.0), &identity(2.0)).unwrap();
        LATE.set(Some(Late { array, report }));
    })
    .join()
    .unwrap();
    assert_eq!(
        reports.recv().unwrap(),
        [const { Err(Error::ThreadEnding) }; 3]
    );
}
