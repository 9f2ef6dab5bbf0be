//! Scopes, with the part of mlx-c that they need. A separate program, because the other tests must not link it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use mlx_overlay::Device;
use mlx_row_policy::{Error, Policy, Stream};

fn main() -> ExitCode {
    bridge_testing::link_mlx_c();
    let works = mlx_overlay::build_info().is_ok_and(|info| info.metal_available)
        && mlx_overlay::has_policies();
    let test = Trial::test("a_scope_is_the_default_stream_of_mlx", scopes);
    let tests = vec![test.with_ignored_flag(!works)];
    let arguments = Arguments {
        include_ignored: false,
        ..Arguments::from_args()
    };
    libtest_mimic::run(&arguments, tests).exit_code()
}

/// The index of MLX's default stream.
fn default(device: Device) -> Result<i32, Failed> {
    Ok(mlx_overlay::Stream::default_of(device)?.index())
}

fn scopes() -> Result<(), Failed> {
    let before = default(Device::Gpu)?;
    let outer = Stream::with_policy(Policy::EXACT)?;
    let inner = Stream::with_policy(Policy::WIDE)?;
    outer.scope(|| {
        assert_eq!(default(Device::Gpu)?, outer.index());
        assert_eq!(inner.scope(|| default(Device::Gpu))??, inner.index());
        assert_eq!(default(Device::Gpu)?, outer.index());
        // Another thread has its own streams.
        let elsewhere = std::thread::spawn(|| default(Device::Gpu));
        assert_ne!(elsewhere.join().map_err(|_| "a panic")??, outer.index());
        Ok::<_, Failed>(())
    })??;
    assert_eq!(default(Device::Gpu)?, before);

    let panic = catch_unwind(AssertUnwindSafe(|| {
        outer.scope(|| resume_unwind(Box::new("in a scope")))
    }));
    assert!(panic.is_err());
    assert_eq!(default(Device::Gpu)?, before);

    if mlx_overlay::build_info()?.cpu {
        let cpu = mlx_overlay::Stream::new(Device::Cpu)?;
        let index = cpu.index();
        let outcome = Stream::from_index(index)?.scope(|| ());
        assert_eq!(outcome, Err(Error::OtherDevice { index }));
    }
    Ok(())
}
