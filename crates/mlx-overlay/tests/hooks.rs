//! Policy hooks in Rust. Without a GPU, real or simulated, every test is listed as ignored.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use dispatch_plan::function_of;
use libtest_mimic::{Arguments, Failed, Trial};
use mlx_overlay::{
    Array, Device, Dtype, Error, Operation, Primitive, Quantization, QuantizedMatrix, RowPolicy,
    Stream, eval, process_policy, quantize, quantized_matmul, record_kernels, remove_policy_hook,
    set_policy_hook,
};

type Outcome = Result<(), Failed>;

const N: usize = 8;
const K: usize = 512;

fn main() {
    let arguments = Arguments::from_args();
    let missing = support::without_policies();
    if let Some(why) = &missing {
        eprintln!("tests of hooks are ignored: {why}");
    }
    let trial = |name: &str, test: fn() -> Outcome| {
        Trial::test(name, move || {
            let _none = NoHook;
            test()
        })
        .with_ignored_flag(missing.is_some())
    };
    let tests = vec![
        trial("a_hook_decides", a_hook_decides),
        trial("a_hook_declines", a_hook_declines),
        trial("a_hook_sees_the_operation", a_hook_sees_the_operation),
        trial("streams_with_a_policy_ask_no_hook", streams_ask_no_hook),
        trial("a_panic_is_an_error", a_panic_is_an_error),
        trial("evaluations_inside_are_refused", evaluations_are_refused),
        trial("registering_inside_is_refused", registering_is_refused),
        trial("closures_are_dropped_once", closures_are_dropped_once),
        trial("a_closure_outlives_its_calls", a_closure_outlives_its_calls),
        trial("a_panic_of_a_drop_ends_there", a_panic_of_a_drop_ends_there),
    ];
    // One after another, because a process has one hook.
    let arguments = Arguments {
        test_threads: Some(1),
        include_ignored: arguments.include_ignored && missing.is_none(),
        ..arguments
    };
    libtest_mimic::run(&arguments, tests).exit();
}

/// Removes the hook, even after a panic.
struct NoHook;

impl Drop for NoHook {
    fn drop(&mut self) {
        remove_policy_hook().unwrap();
    }
}

fn weights() -> Result<QuantizedMatrix, Error> {
    let w = Array::from_slice(&vec![0.5f32; N * K], &[N, K])?;
    let w = quantize(&w, Quantization::affine(4, 64)?)?;
    // So that a later evaluation computes only the product.
    quantized_matmul(&Array::from_slice(&vec![1.0f32; K], &[1, K])?, &w)?.evaluate()?;
    Ok(w)
}

fn product(m: usize, w: &QuantizedMatrix) -> Result<Array, Error> {
    quantized_matmul(&Array::from_slice(&vec![1.0f32; m * K], &[m, K])?, w)
}

/// The kernel that computes three rows on a stream without a policy.
fn function() -> Result<String, Error> {
    let w = weights()?;
    Stream::new(Device::Gpu)?.scope(|| {
        let (outcome, names) = record_kernels(|| product(3, &w)?.evaluate())?;
        outcome?;
        let found = names.iter().rev().find_map(|name| function_of(name));
        Ok(found.unwrap_or_default().to_owned())
    })
}

fn a_hook_decides() -> Outcome {
    let without = function()?;
    for (policy, expected) in [
        (RowPolicy::EXACT, "qmv_streamed_fast"),
        (RowPolicy::NARROW, "qmv_fast"),
        (RowPolicy::WIDE, "qmv_wide"),
        (RowPolicy::EXACT.with_rows(2)?, without.as_str()),
        (RowPolicy::DEFAULT, without.as_str()),
    ] {
        set_policy_hook(move |_| Some(policy))?;
        assert_eq!(function()?, expected, "{policy}");
    }
    remove_policy_hook()?;
    assert_eq!(function()?, without);
    Ok(())
}

fn a_hook_declines() -> Outcome {
    let without = function()?;
    assert_eq!(process_policy()?, RowPolicy::DEFAULT);
    set_policy_hook(|_| None)?;
    assert_eq!(function()?, without);
    Ok(())
}

fn a_hook_sees_the_operation() -> Outcome {
    let seen = Arc::new(Mutex::new(Vec::<Operation>::new()));
    let keep = Arc::clone(&seen);
    let w = weights()?;
    let stream = Stream::new(Device::Gpu)?;
    set_policy_hook(move |operation| {
        keep.lock().unwrap().push(*operation);
        None
    })?;
    stream.scope(|| product(3, &w)?.evaluate())?;
    let seen = seen.lock().unwrap();
    let [operation] = seen[..] else {
        return Err(format!("{seen:?}").into());
    };
    let found = (
        operation.primitive,
        operation.dtype,
        operation.format,
        operation.transpose,
    );
    let format = Quantization::affine(4, 64)?.format();
    let expected = (Primitive::QuantizedMatmul, Dtype::F32, Some(format), true);
    assert_eq!(found, expected);
    assert_eq!([operation.rows, operation.n, operation.k], [3, N, K]);
    assert_eq!([operation.batch, operation.experts], [1, 1]);
    assert_eq!(
        [operation.heads, operation.kv_heads, operation.keys],
        [0; 3]
    );
    assert!(!operation.right_sorted && !operation.global_scale);
    assert_eq!(operation.stream, Some(stream.index()));
    Ok(())
}

fn streams_ask_no_hook() -> Outcome {
    let w = weights()?;
    set_policy_hook(|_| panic!("asked"))?;
    let stream = Stream::with_policy(RowPolicy::EXACT)?;
    stream.scope(|| product(3, &w)?.evaluate())?;
    Ok(())
}

fn a_panic_is_an_error() -> Outcome {
    let stream = Stream::new(Device::Gpu)?;
    for (owned, expected) in [
        (false, "The policy hook failed: it panicked: no idea"),
        (true, "The policy hook failed: it panicked: 3 rows"),
    ] {
        remove_policy_hook()?;
        // A failed evaluation loses what it had to compute.
        let w = weights()?;
        set_policy_hook(move |operation| {
            assert!(owned, "no idea");
            panic!("{} rows", operation.rows)
        })?;
        let error = stream.scope(|| product(3, &w)?.evaluate()).unwrap_err();
        assert_eq!(error.to_string(), format!("[row policy] {expected}"));
    }
    // Nothing remains: no lock, and no mark that a hook is running.
    remove_policy_hook()?;
    let w = weights()?;
    stream.scope(|| product(3, &w)?.evaluate())?;
    Ok(())
}

thread_local! {
    /// An array of this thread; a hook may not capture one.
    static INNER: std::cell::RefCell<Option<Array>> = const { std::cell::RefCell::new(None) };
}

/// Every way to start an evaluation is rejected, and the evaluation that called the hook continues.
fn evaluations_are_refused() -> Outcome {
    let w = weights()?;
    let dense = Array::from_slice(&[1.0f32; 4], &[2, 2])?;
    let exact = Stream::with_policy(RowPolicy::EXACT)?;
    let stream = Stream::new(Device::Gpu)?;
    for inner in [
        // On a stream that calls no hook, on a stream that does, and of an operation without a policy.
        exact.scope(|| product(2, &w))?,
        stream.scope(|| product(2, &w))?,
        stream.scope(|| mlx_overlay::add(&dense, &dense))?,
    ] {
        INNER.set(Some(inner.clone()));
        let refused = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&refused);
        set_policy_hook(move |_| {
            INNER.with_borrow(|inner| {
                let inner = inner.as_ref().unwrap();
                let synchronized = Stream::default_of(Device::Gpu).and_then(|s| s.synchronize());
                for outcome in [
                    inner.evaluate().map(drop),
                    inner.to_vec::<f32>().map(drop),
                    eval([inner]),
                    synchronized,
                ] {
                    assert_eq!(outcome, Err(Error::InPolicyHook));
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
            None
        })?;
        stream.scope(|| product(3, &w)?.evaluate())?;
        assert_eq!(refused.load(Ordering::Relaxed), 4);
        remove_policy_hook()?;
        // It was not lost.
        inner.evaluate()?;
    }
    INNER.set(None);
    Ok(())
}

fn registering_is_refused() -> Outcome {
    let w = weights()?;
    let stream = Stream::new(Device::Gpu)?;
    let said = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&said);
    let dropped = Arc::new(AtomicUsize::new(0));
    let inner = Arc::clone(&dropped);
    set_policy_hook(move |_| {
        let counted = OnDrop(Arc::clone(&inner));
        let refused = set_policy_hook(move |_| {
            let _ = &counted;
            None
        });
        for outcome in [refused, remove_policy_hook()] {
            keep.lock().unwrap().push(outcome.unwrap_err().to_string());
        }
        Some(RowPolicy::EXACT)
    })?;
    stream.scope(|| product(3, &w)?.evaluate())?;
    let expected = "[row policy] The policy hook registers a hook; a hook must only answer";
    assert_eq!(*said.lock().unwrap(), [expected, expected]);
    assert_eq!(dropped.load(Ordering::Relaxed), 1, "the rejected closure");
    Ok(())
}

/// Counts how often it is dropped.
struct OnDrop(Arc<AtomicUsize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn closures_are_dropped_once() -> Outcome {
    let dropped = Arc::new(AtomicUsize::new(0));
    let register = || {
        let counted = OnDrop(Arc::clone(&dropped));
        set_policy_hook(move |_| {
            let _ = &counted;
            None
        })
    };
    for times in 0..3 {
        register()?;
        assert_eq!(dropped.load(Ordering::SeqCst), times, "replaced");
    }
    remove_policy_hook()?;
    assert_eq!(dropped.load(Ordering::SeqCst), 3, "removed");
    remove_policy_hook()?;
    assert_eq!(dropped.load(Ordering::SeqCst), 3);
    Ok(())
}

/// While one thread is inside the hook, another removes it. The removal waits, and the closure stays alive.
fn a_closure_outlives_its_calls() -> Outcome {
    let w = weights()?;
    let dropped = Arc::new(AtomicUsize::new(0));
    let (entered, inside) = mpsc::channel();
    let (go, waits) = mpsc::channel::<()>();
    let waits = Mutex::new(waits);
    let counted = OnDrop(Arc::clone(&dropped));
    set_policy_hook(move |_| {
        entered.send(()).unwrap();
        waits.lock().unwrap().recv().unwrap();
        assert_eq!(counted.0.load(Ordering::SeqCst), 0, "dropped while it runs");
        None
    })?;
    let removed = Arc::new(AtomicBool::new(false));
    let remover = {
        let removed = Arc::clone(&removed);
        std::thread::spawn(move || -> Result<(), Error> {
            inside.recv().unwrap();
            remove_policy_hook()?;
            removed.store(true, Ordering::SeqCst);
            Ok(())
        })
    };
    let waker = {
        let removed = Arc::clone(&removed);
        std::thread::spawn(move || {
            // Gives the removal time to begin. If it does not begin in time, the test passes without proving anything.
            std::thread::sleep(std::time::Duration::from_millis(100));
            let early = removed.load(Ordering::SeqCst);
            go.send(()).unwrap();
            early
        })
    };
    let stream = Stream::new(Device::Gpu)?;
    stream.scope(|| product(3, &w)?.evaluate())?;
    let early = waker.join().map_err(|_| "the waker panicked")?;
    assert!(!early, "removed while it runs");
    remover.join().map_err(|_| "the remover panicked")??;
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    Ok(())
}

/// A panic in a drop must not unwind through C++ either.
fn a_panic_of_a_drop_ends_there() -> Outcome {
    struct Loud;
    impl Drop for Loud {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }
    let loud = Loud;
    set_policy_hook(move |_| {
        let _ = &loud;
        None
    })?;
    remove_policy_hook()?;
    Ok(())
}
