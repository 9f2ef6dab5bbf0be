//! The Metal back-end on Linux, on the simulated device of `crates/metal-sim`.
//!
//! MLX's CMake files run unchanged; `crates/metal-sim/cmake/metal-sim.cmake` provides the tools and headers of a Mac.
//! The kernel compiler replaces `xcrun`, so it is built first.

use anyhow::{Context, Result, bail};
use camino::Utf8PathBuf;

use super::configuration::{Configuration, Options};
use crate::cargo;
use crate::host::{Host, Os};
use crate::requirements;

pub(super) fn configure(host: &Host, options: &Options) -> Result<Configuration> {
    if host.os != Os::Linux {
        bail!("the sim back-end simulates a GPU on Linux; on macOS use `--backend metal`");
    }
    let mut missing: Vec<_> = requirements::kernel_clang(host).err().into_iter().collect();
    if options.cpu {
        missing.extend(requirements::blas_for_build(host).err());
    }
    if !missing.is_empty() {
        bail!("{}", requirements::report(host, &missing));
    }
    let root = crate_root()?;
    let mut configuration = Configuration {
        cpu: options.cpu,
        metallib: true,
        ..Configuration::default()
    };
    configuration.switch("MLX_BUILD_CPU", options.cpu);
    configuration.switch("MLX_METAL_JIT", options.jit);
    configuration.paths = vec![
        (
            "CMAKE_PROJECT_mlx_INCLUDE".to_owned(),
            root.join("cmake/metal-sim.cmake"),
        ),
        (
            "METAL_SIM_COMPILER".to_owned(),
            cargo::build(host, &root, &["--bin"], "metal-simc")?,
        ),
    ];
    Ok(configuration)
}

/// The folder of the `metal-sim` crate.
fn crate_root() -> Result<Utf8PathBuf> {
    let root = crate::checkout().join("crates/metal-sim");
    root.canonicalize_utf8().with_context(|| {
        format!("{root} is missing; run `cargo xtask` inside a checkout of the repository")
    })
}
