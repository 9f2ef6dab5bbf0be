//! The engine, the shim and the generated code around a kernel, under the sanitizers: lanes of several threads that run
//! at the same time, and a threadgroup that is abandoned in the middle, must be clean.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use support::{Run, build_runner, build_runner_in};

const COLLECTIVES: &str = "#include <metal_stdlib>
    using namespace metal;
    constant int factor [[function_constant(0)]];
    struct pair { float a; float b[3]; };
    [[kernel]] void k(device const float* x, device float* y, constant pair& p, threadgroup float* t [[threadgroup(0)]],
            uint i [[thread_position_in_grid]], uint l [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
        threadgroup half4 v[96];
        v[l] = half4(x[i]); t[l] = x[i] * factor;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float s = t[n - 1 - l] + float(v[(l + 1) % n].z) + p.b[2];
        if (l % 5 == 4) { y[i] = s; return; }
        s += simd_sum(s) + quad_max(s) + simd_shuffle_xor(s, 1) + simd_prefix_exclusive_sum(s);
        y[i] = s;
    }";

const DIVERGES: &str = "#include <metal_stdlib>
    using namespace metal;
    [[kernel]] void k(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
        float s = simd_sum(x[i]);
        if (i % 64 > 40) threadgroup_barrier(mem_flags::mem_threadgroup);
        y[i] = simd_max(s);
    }";

/// With a barrier that orders nothing, which lanes may skip.
fn stays_away() -> String {
    DIVERGES.replace("mem_threadgroup", "mem_none")
}

fn run(source: &str) -> Run {
    Run::text(source, "k")
        .buffer(0, &vec![0.5f32; 960])
        .buffer(1, &vec![0f32; 960])
        .buffer(2, &[1f32; 4])
        .with("local 0 384 constant 0 29 3 threads 950 1 1 group 96 1 1 workers 3 repeat 3")
}

fn clean(runner: &Path, flags: &[&str]) {
    for how in ["order neighbours", "reverse"] {
        for source in [COLLECTIVES, &stays_away()] {
            let plain = run(source).with(how).go();
            let checked = run(source).with(how).built_with(flags, runner).go();
            assert_eq!(plain.get::<u32>(1), checked.get::<u32>(1), "{how}");
        }
        let faulted = run(DIVERGES).with(how).built_with(flags, runner).go();
        assert_eq!(faulted.fault().code, "DIVERGENT");
    }
}

const UNDEFINED: &str = "-fsanitize=address,undefined";

#[test]
fn clean_under_address_and_undefined_behaviour_sanitizers() {
    let runner = build_runner(
        "-address",
        &[
            UNDEFINED,
            "-fno-sanitize-recover=undefined",
            "-gline-tables-only",
        ],
    );
    clean(
        &runner,
        &[
            UNDEFINED,
            "-fno-sanitize-recover=undefined",
            "-gline-tables-only",
        ],
    );
}

#[test]
fn the_portable_switch_runs_the_same() {
    let runner = build_runner("-portable", &["-DMTLSIM_UCONTEXT", UNDEFINED]);
    clean(&runner, &[UNDEFINED]);
}

/// The engine and kernels of another processor, interpreted: they have never run on such a machine.
#[test]
#[ignore = "needs qemu-user-static and g++-aarch64-linux-gnu"]
fn the_switch_of_aarch64_runs_the_same() {
    let there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    assert!(
        there("qemu-aarch64-static") && there("aarch64-linux-gnu-g++"),
        "needs the packages qemu-user-static and g++-aarch64-linux-gnu"
    );
    let folder = support::crate_folder().join("engine");
    for (tag, flags) in [
        ("-aarch64", &[][..]),
        ("-aarch64-portable", &["-DMTLSIM_UCONTEXT"]),
    ] {
        let program = build_runner_in("aarch64-linux-gnu-g++", &folder, tag, flags);
        let runner = program.with_extension("sh");
        let script = format!(
            "#!/bin/sh\nexec qemu-aarch64-static -L /usr/aarch64-linux-gnu {} \"$@\"\n",
            program.display()
        );
        fs::write(&runner, script).unwrap();
        fs::set_permissions(&runner, fs::Permissions::from_mode(0o755)).unwrap();
        clean(&runner, &["--target=aarch64-linux-gnu", "-march=armv8-a"]);
    }
}

#[test]
fn clean_under_the_thread_sanitizer() {
    let runner = build_runner("-thread", &["-fsanitize=thread", "-gline-tables-only"]);
    // Calls and returns of lanes do not use one stack.
    clean(
        &runner,
        &[
            "-fsanitize=thread",
            "-mllvm",
            "-tsan-instrument-func-entry-exit=0",
            "-gline-tables-only",
        ],
    );
}

#[test]
fn the_sanitizers_see_a_kernel_that_is_wrong() {
    let source = COLLECTIVES.replace("y[i] = s;\n    }", "y[i + 20] = s;\n    }");
    let runner = build_runner("-address-red", &[UNDEFINED, "-gline-tables-only"]);
    let program = run(&source).built_with(&[UNDEFINED], &runner);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| program.go()));
    let message = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert!(
        message.contains("AddressSanitizer: heap-buffer-overflow"),
        "{message}"
    );
}
