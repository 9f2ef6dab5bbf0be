//! A process that ends while its threads use MLX.

#![allow(clippy::unwrap_used)] // in helpers too

use std::process::Command;
use std::sync::mpsc;
use std::{env, thread};

use mlx_overlay::{Array, Error, matmul};

const CHILD: &str = "MLX_OVERLAY_TEST_CHILD";

/// Runs this test binary again, as a process that returns from `main` while other threads are busy.
#[test]
fn the_process_ends_cleanly_under_busy_threads() {
    if env::var_os(CHILD).is_some() {
        return leave_busy_threads_behind();
    }
    for round in 0..40 {
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", "the_process_ends_cleanly_under_busy_threads"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(
            output.status.success() && ran,
            "round {round}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

fn leave_busy_threads_behind() {
    let (started, starts) = mpsc::channel();
    for _ in 0..4 {
        let started = started.clone();
        thread::spawn(move || {
            let mut announced = false;
            loop {
                let array = Array::from_slice(&[0.5f32; 32 * 32], &[32, 32]);
                match array.and_then(|array| matmul(&array, &array)?.to_vec::<f32>()) {
                    Ok(product) => assert_eq!(product, [8.0; 32 * 32]),
                    Err(Error::ProcessEnding) => {}
                    Err(error) => panic!("{error}"),
                }
                if !announced {
                    announced = true;
                    started.send(()).unwrap();
                }
            }
        });
    }
    drop(started);
    // Waits only for the first messages: the threads continue.
    starts.iter().take(4).for_each(drop);
}
