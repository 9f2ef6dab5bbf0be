//! MLX's build finds the kernel compiler wherever the folders lie.

#![allow(clippy::unwrap_used, reason = "a test stops where something is amiss")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

/// As MLX's, as far as metal-sim.cmake looks: a version, two sources, a custom command that runs `xcrun`.
const PROJECT: &str = "cmake_minimum_required(VERSION 3.25)
project(mlx LANGUAGES CXX)
set(MLX_BUILD_METAL OFF)
set(MLX_METAL_VERSION 0)
add_custom_command(
  OUTPUT version.txt
  COMMAND xcrun --show-sdk-version > version.txt)
add_custom_target(version DEPENDS version.txt)
install(EXPORT MLXTargets DESTINATION share)
";

#[test]
fn the_compiler_is_found_in_folders_with_odd_names() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("it's (x) & [y] ü");
    let metal = root.join("mlx/mlx/backend/metal");
    fs::create_dir_all(&metal).unwrap();
    for file in ["fft.cpp", "matmul.cpp"] {
        fs::write(metal.join(file), "").unwrap();
    }
    fs::write(root.join("mlx/CMakeLists.txt"), PROJECT).unwrap();
    symlink(support::crate_folder(), root.join("metal-sim")).unwrap();
    let build = root.join("build");
    let argument =
        |variable: &str, value: &std::path::Path| format!("-D{variable}={}", value.display());
    support::run(
        Command::new("cmake")
            .args(["-G", "Ninja", "-S"])
            .arg(root.join("mlx"))
            .arg("-B")
            .arg(&build)
            .arg(argument(
                "CMAKE_PROJECT_mlx_INCLUDE",
                &root.join("metal-sim/cmake/metal-sim.cmake"),
            ))
            .arg(argument(
                "METAL_SIM_COMPILER",
                env!("CARGO_BIN_EXE_metal-simc").as_ref(),
            )),
    );
    support::run(
        Command::new("cmake")
            .arg("--build")
            .arg(&build)
            .args(["--target", "version"]),
    );
    let version = fs::read_to_string(build.join("version.txt")).unwrap();
    assert_eq!(version.trim(), "26.2");
}
