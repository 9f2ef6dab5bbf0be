//! The kernel compiler and its cache, in any folder.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Like MLX's as far as metal-sim.cmake reads it: a version, two sources, a custom command that runs `xcrun`.
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
    let argument = |variable: &str, value: &Path| format!("-D{variable}={}", value.display());
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

/// Runs `metal-simc` with a separate folder for temporary files.
fn metal_simc(temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metal-simc"));
    for name in ["MTL_SIM_CACHE", "XDG_CACHE_HOME"] {
        command.env_remove(name);
    }
    command.env("TMPDIR", temporary);
    command
}

#[test]
fn two_processes_fill_one_cache() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = scratch.path().join("cache");
    let source = scratch.path().join("k.metal");
    fs::write(&source, "[[kernel]] void k(device int* y) { y[0] = 1; }").unwrap();
    let start = || {
        let mut command = metal_simc(scratch.path());
        command.env("MTL_SIM_CACHE", &cache);
        command
    };
    let printed = |command: &mut Command| {
        let output = command.output().unwrap();
        let (text, errors) = (output.stdout, String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{errors}");
        String::from_utf8(text).unwrap().trim().to_owned()
    };
    let library = printed(start().args(["library", "--source"]).arg(&source));
    let kernel = || {
        let mut command = start();
        command.args(["kernel", "--library", &library, "--name", "k"]);
        command
    };
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| printed(&mut kernel()));
        (printed(&mut kernel()), other.join().unwrap())
    });
    for path in [&one, &other] {
        assert!(Path::new(path).is_file(), "{path}");
    }
    // Both are content of the cache: the next one takes one of them.
    let next = printed(&mut kernel());
    assert!([one, other].contains(&next), "{next}");
    let left = |name: &str| name.starts_with("tmp-");
    let entries = fs::read_dir(&cache).unwrap().map(Result::unwrap);
    let left: Vec<_> = entries
        .filter(|entry| left(entry.file_name().to_str().unwrap()))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_home_that_cannot_be_written_is_no_hindrance() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("k.metal");
    fs::write(&source, "[[kernel]] void k(device int* y) { y[0] = 1; }").unwrap();
    let library = |home: &str| {
        let mut command = metal_simc(scratch.path());
        command.args(["library", "--source"]).arg(&source);
        let output = command.env("HOME", home).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let found = library("/proc/no-home");
    let temporary = scratch.path().join("metal-sim-");
    assert!(found.starts_with(temporary.to_str().unwrap()), "{found}");
    let home = scratch.path().join("home");
    let found = library(home.to_str().unwrap());
    let in_home = home.join(".cache/metal-sim");
    assert!(found.starts_with(in_home.to_str().unwrap()), "{found}");
}
