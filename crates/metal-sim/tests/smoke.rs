//! MLX on the simulated device, from an installed prefix.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use mlx_prefix::{Backend, CURRENT, Prefix};

fn prefix() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let prefix = Prefix::open(workspace.join(CURRENT)).unwrap();
    assert_eq!(
        prefix.stamp.backend,
        Backend::Sim,
        "`cargo xtask build --backend sim` makes another"
    );
    prefix.root
}

/// Each generation uses the kernel that MLX chooses for it on a Mac, and faults are MLX's exceptions.
#[test]
#[ignore = "needs `cargo xtask build --backend sim`"]
fn mlx_runs_on_every_generation() {
    let build = support::cmake(
        "tests/smoke",
        "smoke",
        &[
            "CMAKE_BUILD_TYPE=Release".to_owned(),
            format!("CMAKE_PREFIX_PATH={}", prefix().display()),
        ],
    );
    for (arch, kernel) in [
        ("applegpu_g13s", "affine_qmv_fast_float_gs_64_b_4"),
        ("applegpu_g15d", "affine_qmv_wide_float_gs_64_b_4_nv_2"),
        ("applegpu_g17s", "affine_qmv_wide_float_gs_64_b_4_nv_2"),
    ] {
        support::run(
            Command::new(build.join("smoke"))
                .arg(kernel)
                .env("MTL_SIM_ARCH", arch)
                .env("MTL_SIM_GUARD", "1")
                .env("MTL_SIM_STALE", "1")
                .env("MTL_SIM_PAGE", "16"),
        );
    }
}
