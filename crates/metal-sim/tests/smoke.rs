//! MLX on the simulated device, from an installed prefix.

use std::path::{Path, PathBuf};
use std::process::Command;

fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

fn prefix() -> PathBuf {
    let current = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mlx/current");
    let stamp = std::fs::read_to_string(current.join("mlx-overlay.toml")).unwrap_or_default();
    assert!(
        stamp.contains("backend = \"sim\""),
        "{} is no sim build; `cargo xtask build --backend sim` makes one",
        current.display()
    );
    current
        .canonicalize()
        .expect("the stamp was read through it")
}

/// Each generation takes the kernel that MLX gives it on a Mac, and faults are MLX's exceptions.
#[test]
#[ignore = "needs `cargo xtask build --backend sim`"]
fn mlx_runs_on_every_generation() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/smoke");
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join("smoke");
    run(Command::new("cmake")
        .arg("-S")
        .arg(source)
        .arg("-B")
        .arg(&build)
        .args(["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"])
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
    run(Command::new("cmake").arg("--build").arg(&build));
    for (arch, kernel) in [
        ("applegpu_g13s", "affine_qmv_fast_float_gs_64_b_4"),
        ("applegpu_g15d", "affine_qmv_wide_float_gs_64_b_4_nv_2"),
        ("applegpu_g17s", "affine_qmv_wide_float_gs_64_b_4_nv_2"),
    ] {
        run(Command::new(build.join("smoke"))
            .arg(kernel)
            .env("MTL_SIM_ARCH", arch)
            .env("MTL_SIM_GUARD", "1")
            .env("MTL_SIM_STALE", "1")
            .env("MTL_SIM_PAGE", "16"));
    }
}
