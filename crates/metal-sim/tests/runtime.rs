//! The device runtime's own tests: C++ programs, built and run by CMake.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::process::Command;

fn ctest(name: &str, settings: &[String]) {
    let build = support::cmake(".", name, settings);
    support::run(
        Command::new("ctest")
            .arg("--test-dir")
            .arg(build)
            .args(["--output-on-failure", "--no-tests=error"])
            .env("METAL_SIM_ARCHITECTURES", architectures())
            .env("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1"),
    );
}

/// Every architecture, in the form in which tests/runtime/device.cpp lists those of the runtime: by generation, then by
/// letter.
fn architectures() -> String {
    let mut all: Vec<_> = metal_sim::Architecture::all()
        .map(|architecture| format!("{architecture} "))
        .collect();
    all.sort_unstable();
    all.concat()
}

/// Reference counts, queues, faults, order, settings (tests/runtime/*.cpp).
#[test]
fn runtime_tests_pass() {
    ctest("runtime", &["CMAKE_BUILD_TYPE=RelWithDebInfo".to_owned()]);
}

/// Also checks every access of the runtime and of the engine.
#[test]
#[ignore = "takes a minute: builds the runtime twice more"]
fn runtime_tests_pass_under_the_sanitizers() {
    for sanitizers in ["address,undefined", "thread"] {
        ctest(
            &format!("runtime-{sanitizers}"),
            &[
                "CMAKE_BUILD_TYPE=RelWithDebInfo".to_owned(),
                format!("CMAKE_CXX_COMPILER={}", support::compiler()),
                format!("METAL_SIM_SANITIZE={sanitizers}"),
            ],
        );
    }
}
