//! MLX on the simulated device, from an installed prefix.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

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

fn build() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        support::cmake(
            "tests/smoke",
            "smoke",
            &[
                "CMAKE_BUILD_TYPE=Release".to_owned(),
                format!("CMAKE_PREFIX_PATH={}", prefix().display()),
            ],
        )
    })
}

/// What the detectors find in MLX's own kernels: mode, case and words of the fault. Each is in
/// docs/reports/findings-in-mlx.md.
const KNOWN: &[(&str, &str, &str)] = &[(
    "access",
    "qmv of few inputs",
    "affine_qmv_quad_float_gs_64_b_4_d_128_batch_0, threadgroup (0, 0, 0), lane 0: access at byte 256 of argument scales",
)];

/// Every detector passes over a core of MLX's own kernels, but for what is known.
#[test]
#[ignore = "needs `cargo xtask build --backend sim`"]
fn kernels_of_mlx_are_clean_in_every_mode() {
    for mode in ["access", "init"] {
        let output = Command::new(build().join("modes"))
            .env("MTL_SIM_ARCH", "applegpu_g15d")
            .env("MTL_SIM_THREADS", "1")
            .env("MTL_SIM_CHECK", mode)
            .output()
            .unwrap();
        assert!(output.status.success(), "{mode}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let mut found = text.lines();
        for (_, case, words) in KNOWN.iter().filter(|(known, ..)| *known == mode) {
            let line = found.next().unwrap_or_default();
            assert!(
                line.starts_with(case) && line.contains(words),
                "{mode}: expected the known finding in {case} ({words}), found:\n{text}"
            );
        }
        assert_eq!(found.next(), None, "{mode}: not a known finding");
    }
}

/// Each generation uses the kernel that MLX chooses for it on a Mac, and faults are MLX's exceptions.
#[test]
#[ignore = "needs `cargo xtask build --backend sim`"]
fn mlx_runs_on_every_generation() {
    for (arch, kernel) in [
        ("applegpu_g13s", "affine_qmv_fast_float_gs_64_b_4"),
        ("applegpu_g15d", "affine_qmv_wide_float_gs_64_b_4_nv_2"),
        ("applegpu_g17s", "affine_qmv_wide_float_gs_64_b_4_nv_2"),
    ] {
        support::run(
            Command::new(build().join("smoke"))
                .arg(kernel)
                .env("MTL_SIM_ARCH", arch)
                .env("MTL_SIM_GUARD", "1")
                .env("MTL_SIM_STALE", "1")
                .env("MTL_SIM_PAGE", "16"),
        );
    }
}
