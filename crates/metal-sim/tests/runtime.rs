//! The device runtime's own tests: C++ programs, built and run by CMake.

use std::path::Path;
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

/// Reference counts, queues, faults, order, settings (tests/runtime/*.cpp).
#[test]
fn runtime_tests_pass() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join("runtime");
    run(Command::new("cmake")
        .arg("-S")
        .arg(source)
        .arg("-B")
        .arg(&build)
        .args(["-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]));
    run(Command::new("cmake")
        .arg("--build")
        .arg(&build)
        .args(["--parallel", "2"]));
    run(Command::new("ctest")
        .arg("--test-dir")
        .arg(&build)
        .arg("--output-on-failure"));
}
