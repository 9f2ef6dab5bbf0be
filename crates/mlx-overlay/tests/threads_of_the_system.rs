//! Threads that start and end, and processes that fork. The counts are of a whole process, so each test has its own.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::env;
use std::process::Command;
use std::thread;

use mlx_overlay::{Array, Device, Error, Stream, add, async_eval, eval};

const CHILD: &str = "MLX_OVERLAY_TEST_CHILD";

/// Runs a test of this program again, alone in a process.
fn alone(name: &str) -> bool {
    if env::var_os(CHILD).is_some_and(|child| child == name) {
        return true;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, name)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

fn sum() -> Result<Vec<f32>, Error> {
    let a = Array::from_slice(&[1.0f32, 2.0], &[2])?;
    add(&a, &a)?.to_vec::<f32>()
}

fn devices() -> Vec<Device> {
    let all = [Device::Cpu, Device::Gpu].into_iter();
    all.filter(|device| device.is_available().unwrap())
        .collect()
}

/// The number of operating-system threads of this process.
#[cfg(target_os = "linux")]
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[cfg(target_os = "linux")]
#[test]
fn short_lived_threads_leave_none_of_the_system_behind() {
    if !alone("short_lived_threads_leave_none_of_the_system_behind") {
        return;
    }
    let work = || {
        for device in devices() {
            let stream = Stream::default_of(device).unwrap();
            assert_eq!(stream.scope(sum).unwrap(), [2.0, 4.0]);
        }
    };
    let rounds = |count: usize| {
        for _ in 0..count {
            thread::spawn(work).join().unwrap();
        }
        threads()
    };
    // A joined thread may still be counted.
    let before = rounds(10);
    let after = rounds(200);
    assert!(after <= before + 4, "{before} threads, then {after}");
}

/// Waiting for a CPU stream creates a thread for it.
#[cfg(target_os = "linux")]
#[test]
fn threads_that_use_the_gpu_alone_leave_none_behind() {
    if !devices().contains(&Device::Gpu)
        || !alone("threads_that_use_the_gpu_alone_leave_none_behind")
    {
        return;
    }
    let work = || Stream::default_of(Device::Gpu).unwrap().scope(sum).unwrap();
    work();
    let before = threads();
    // Each with its own stream, because all run at the same time.
    let count = 12;
    let together = std::sync::Barrier::new(count);
    thread::scope(|scope| {
        let run = || {
            work();
            together.wait();
        };
        let all: Vec<_> = (0..count).map(|_| scope.spawn(run)).collect();
        // Wait until they have ended: the end of the scope does not guarantee it.
        for thread in all {
            thread.join().unwrap();
        }
    });
    // A joined thread may still be counted.
    let after = threads();
    assert!(after <= before + 4, "{before} threads, then {after}");
}

/// A thread's stream passes to a later thread, and contains nothing of the former.
#[test]
fn a_stream_is_handed_on_empty() {
    if !alone("a_stream_is_handed_on_empty") {
        return;
    }
    let index = || {
        let stream = Stream::default_of(Device::Cpu).unwrap();
        let work = || {
            // Nothing waits for it.
            let a = Array::full(&[1 << 16], 1.0f32)?;
            async_eval([&add(&a, &a)?])?;
            Ok::<_, Error>(stream.index())
        };
        stream.scope(work).unwrap()
    };
    let first = thread::spawn(index).join().unwrap();
    for _ in 0..20 {
        assert_eq!(thread::spawn(index).join().unwrap(), first);
    }
    // At the same time, each has its own.
    let both = std::sync::Barrier::new(2);
    let index = || {
        let index = index();
        both.wait();
        index
    };
    thread::scope(|scope| {
        let [one, other] = [scope.spawn(index), scope.spawn(index)];
        assert_ne!(one.join().unwrap(), other.join().unwrap());
    });
}

mod system {
    unsafe extern "C" {
        pub(crate) fn fork() -> i32;
        pub(crate) fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
        pub(crate) fn alarm(seconds: u32) -> u32;
        pub(crate) fn exit(status: i32) -> !;
    }
}

/// The child has none of the threads that would do its work.
#[test]
fn a_forked_child_is_refused_and_ends() {
    if !alone("a_forked_child_is_refused_and_ends") {
        return;
    }
    let a = Array::from_slice(&[1.0f32, 2.0], &[2]).unwrap();
    let lazy = add(&a, &a).unwrap();
    let evaluated = add(&a, &a).unwrap().evaluate().unwrap();
    sum().unwrap();
    // SAFETY: the child calls nothing that needs another thread. The test checks that MLX is not entered.
    let child = unsafe { system::fork() };
    if child == 0 {
        // SAFETY: as above. The alarm kills a child that hangs.
        unsafe { system::alarm(20) };
        let refused = [
            sum().map(drop),
            eval([&lazy]),
            lazy.to_vec::<f32>().map(drop),
            evaluated.to_array().map(drop),
            Stream::new(Device::Cpu).map(drop),
            mlx_overlay::memory::clear_cache(),
        ];
        let as_said = refused.iter().all(|r| *r == Err(Error::ProcessForked));
        // Existing contents can be read and dropped.
        let readable = evaluated.as_slice::<f32>() == Ok(&[2.0, 4.0][..]);
        drop((lazy, evaluated));
        let status = i32::from(!(as_said && readable));
        // SAFETY: `exit` runs the handlers that MLX and the bridge registered.
        unsafe { system::exit(status) };
    }
    let mut status = -1;
    // SAFETY: the child is ours, and `status` is writable.
    let ended = unsafe { system::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0), "status {status:#x}");
    // The parent continues.
    assert_eq!(lazy.to_vec::<f32>().unwrap(), [2.0, 4.0]);
    // A program that is started is not affected.
    let output = Command::new("true").status().unwrap();
    assert!(output.success());
}

/// A thread that ends while its work runs.
#[test]
fn work_that_nobody_waits_for_ends_with_its_thread() {
    for device in devices() {
        let work = move || {
            let stream = Stream::new(device).unwrap();
            let start = || {
                let mut a = Array::full(&[256, 256], 1.0f32)?;
                for _ in 0..20 {
                    a = add(&a, &a)?;
                    async_eval([&a])?;
                }
                Ok::<_, Error>(())
            };
            stream.scope(start).unwrap();
        };
        for _ in 0..5 {
            thread::spawn(work).join().unwrap();
        }
    }
}
