//! A request's failure does not affect the other requests of its thread. The simulated device has a chosen memory size,
//! so the tests run in separate processes with a small one. Without the simulated device they are listed as ignored.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::env;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use mlx_overlay::{
    Array, Backend, Device, Dtype, Error, Result, Stream, add, async_eval, build_info, eval,
    matmul, memory, multiply, reshape, slice, slice_update,
};

/// The device's memory in bytes. The device rejects buffers above three quarters of it.
const MEMORY: usize = 64 << 20;
const CHILD: &str = "MLX_OVERLAY_TEST_CHILD";

type Test = (&'static str, fn() -> Result<()>);

const TESTS: [Test; 5] = [
    (
        "a_cache_survives_the_failures_of_another",
        a_cache_survives_the_failures_of_another,
    ),
    (
        "a_cache_survives_failures_of_work_that_was_started",
        a_cache_survives_failures_of_work_that_was_started,
    ),
    (
        "lack_of_memory_is_reported_with_the_bytes",
        lack_of_memory_is_reported_with_the_bytes,
    ),
    ("limits_are_set_and_read", limits_are_set_and_read),
    (
        "streams_that_a_failure_did_not_reach_get_no_thread",
        streams_that_a_failure_did_not_reach_get_no_thread,
    ),
];

fn main() -> ExitCode {
    if let Ok(name) = env::var(CHILD) {
        let (_, test) = TESTS.iter().find(|(known, _)| *known == name).unwrap();
        test().unwrap();
        #[expect(clippy::print_stdout, reason = "the parent reads it")]
        {
            println!("{name} is done");
        }
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    let is_simulated = build_info().is_ok_and(|info| info.backend == Backend::Sim);
    let trial = |&(name, _): &Test| {
        Trial::test(name, move || in_child(name)).with_ignored_flag(!is_simulated)
    };
    // Tests that cannot run here stay ignored even if the long tests are requested.
    arguments.include_ignored &= is_simulated;
    libtest_mimic::run(&arguments, TESTS.iter().map(trial).collect()).exit_code()
}

fn in_child(name: &str) -> std::result::Result<(), Failed> {
    let output = Command::new(env::current_exe()?)
        .env(CHILD, name)
        .env("MTL_SIM_MEMORY", MEMORY.to_string())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && said.contains(&format!("{name} is done")) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {text}", output.status).into())
}

/// An array that MLX accepts and the device does not.
const TOO_LARGE: usize = MEMORY / 4 * 3 + 4096;

/// Runs on the GPU; its evaluation fails.
fn too_large() -> Result<Array> {
    let half = Array::full(&[TOO_LARGE], 1u8)?;
    add(&half, &half)
}

fn is_lack_of_memory(result: Result<()>) -> bool {
    matches!(result, Err(Error::OutOfMemory { bytes }) if bytes >= TOO_LARGE)
}

const POSITIONS: usize = 8;

/// A sequence that is decoded. Its cache is only evaluated as an intermediate result.
struct Sequence {
    cache: Array,
    expected: [f32; POSITIONS],
    step: usize,
}

impl Sequence {
    fn new() -> Result<Self> {
        Ok(Self {
            cache: Array::zeros(&[1, POSITIONS], Dtype::F32)?,
            expected: [0.0; POSITIONS],
            step: 0,
        })
    }

    /// Writes the next value into the cache and returns the sum of all values.
    fn advance(&mut self) -> Result<Array> {
        let at = self.step % POSITIONS;
        let value = (self.step % 97) as f32;
        self.step += 1;
        self.expected[at] = value;
        let update = multiply(&Array::full(&[1, 1], value)?, &Array::full(&[1, 1], 1f32)?)?;
        self.cache = slice_update(&self.cache, &update, &[0..1, at..at + 1])?;
        let ones = Array::full(&[POSITIONS, 1], 1f32)?;
        matmul(&self.cache, &ones)
    }

    fn sum(&self) -> f32 {
        self.expected.iter().sum()
    }
}

/// The outputs of the failing request: its own cache, and an array larger than the memory.
fn fail(cache: &Array) -> Result<()> {
    let more = slice_update(cache, &Array::full(&[1, 1], 1f32)?, &[0..1, 0..1])?;
    let first = slice(&more, &[0..1, 0..1])?;
    let huge = mlx_overlay::as_type(&too_large()?, Dtype::U8)?;
    eval([&first, &huge])
}

fn a_cache_survives_the_failures_of_another() -> Result<()> {
    let mut sequence = Sequence::new()?;
    for round in 0..1000 {
        let sum = sequence.advance()?;
        // Before or after this sequence's evaluation, and with a cache that is not evaluated yet.
        let early = round % 2 == 0;
        let other = Array::full(&[1, POSITIONS], 2f32)?;
        if early {
            assert!(is_lack_of_memory(fail(&other)), "round {round}");
        }
        assert_eq!(sum.to_vec::<f32>()?, [sequence.sum()], "round {round}");
        if !early {
            assert!(is_lack_of_memory(fail(&other)), "round {round}");
        }
        assert_eq!(other.to_vec::<f32>().err(), Some(Error::Lost));
        // This sequence's own next step fails, and is repeated from the cache.
        assert!(is_lack_of_memory(fail(&sequence.cache)), "round {round}");
    }
    assert_eq!(sequence.cache.to_vec::<f32>()?, sequence.expected);
    Ok(())
}

fn a_cache_survives_failures_of_work_that_was_started() -> Result<()> {
    let mut sequence = Sequence::new()?;
    for round in 0..100 {
        let sum = sequence.advance()?;
        async_eval([&sum])?;
        let other = Array::full(&[1, POSITIONS], 2f32)?;
        assert!(is_lack_of_memory(fail(&other)), "round {round}");
        let next = sequence.advance()?;
        async_eval([&next])?;
        assert!(is_lack_of_memory(
            too_large().and_then(|huge| async_eval([&huge]))
        ));
        assert_eq!(next.to_vec::<f32>()?, [sequence.sum()], "round {round}");
        assert!(sum.to_vec::<f32>().is_ok(), "round {round}");
    }
    assert_eq!(sequence.cache.to_vec::<f32>()?, sequence.expected);
    Ok(())
}

fn lack_of_memory_is_reported_with_the_bytes() -> Result<()> {
    // More than MLX's limit: rejected when it is built or copied.
    let bytes = 1 << 40;
    let out = |result: Result<Array>| result.unwrap_err();
    let expected = Error::OutOfMemory { bytes };
    assert_eq!(out(Array::zeros(&[1 << 20, 1 << 20], Dtype::U8)), expected);
    assert_eq!(
        expected.to_string(),
        "out of memory: 1099511627776 bytes are more than MLX's memory limit, or than the device has left"
    );
    let copied = vec![0u8; MEMORY];
    let error = Array::from_slice(&copied, &[MEMORY]).unwrap_err();
    assert_eq!(error, Error::OutOfMemory { bytes: MEMORY });
    // More than the device has.
    let copied = &copied[..TOO_LARGE];
    let error = Array::from_slice(copied, &[TOO_LARGE]).unwrap_err();
    assert_eq!(error, Error::OutOfMemory { bytes: TOO_LARGE });
    assert!(is_lack_of_memory(too_large()?.evaluate().map(drop)));
    // The copy that makes elements contiguous may fail; then the array itself is evaluated.
    let part = TOO_LARGE / 2;
    let wide = Array::full(&[2, part], 1u8)?;
    let error = reshape(&mlx_overlay::transpose(&wide)?, &[2 * part])?.evaluate();
    assert!(is_lack_of_memory(error.map(drop)));
    Ok(())
}

/// Waiting for a CPU stream creates an operating-system thread for it.
fn streams_that_a_failure_did_not_reach_get_no_thread() -> Result<()> {
    if !Device::Cpu.is_available()? || !cfg!(target_os = "linux") {
        return Ok(());
    }
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let evaluate = || -> Result<()> {
        let huge = too_large()?;
        let part = || Stream::new(Device::Cpu)?.scope(|| reshape(&huge, &[1, TOO_LARGE]));
        let parts = (0..12).map(|_| part()).collect::<Result<Vec<_>>>()?;
        eval(&parts)
    };
    // The device has its threads from here on.
    assert!(is_lack_of_memory(too_large()?.evaluate().map(drop)));
    let before = threads();
    assert!(is_lack_of_memory(evaluate()));
    // MLX itself waits for the first array's stream.
    let after = threads();
    assert!(after <= before + 2, "{before} threads, then {after}");
    Ok(())
}

fn limits_are_set_and_read() -> Result<()> {
    let gpu = Stream::default_of(Device::Gpu)?;
    let before = memory::in_use()?;
    let kept = gpu.scope(|| {
        let kept = add(
            &Array::full(&[1 << 20], 1u8)?,
            &Array::full(&[1 << 20], 1u8)?,
        )?;
        kept.evaluate()?;
        Ok::<_, Error>(kept)
    })?;
    let during = memory::in_use()?;
    assert!(during.active >= before.active + kept.len(), "{during:?}");
    assert!(during.peak >= during.active);
    drop(kept);
    // MLX keeps inputs until the device has finished their command buffer.
    gpu.synchronize()?;
    let after = memory::in_use()?;
    assert!(
        after.active < during.active && after.cached > 0,
        "{after:?}"
    );
    memory::clear_cache()?;
    assert_eq!(memory::in_use()?.cached, 0);
    memory::reset_peak()?;
    assert!(memory::in_use()?.peak <= memory::in_use()?.active + (1 << 20));
    let former = memory::set_limit(1 << 20)?;
    assert_eq!(former, before.limit);
    assert_eq!(memory::in_use()?.limit, 1 << 20);
    let error = Array::zeros(&[(1 << 20) + 1], Dtype::U8).unwrap_err();
    assert_eq!(
        error,
        Error::OutOfMemory {
            bytes: (1 << 20) + 1
        }
    );
    assert!(Array::zeros(&[1 << 20], Dtype::U8)?.evaluate().is_ok());
    memory::set_limit(former)?;
    memory::set_cache_limit(0)?;
    drop(Array::zeros(&[1 << 20], Dtype::U8)?.evaluate()?);
    assert_eq!(memory::in_use()?.cached, 0);
    Ok(())
}
