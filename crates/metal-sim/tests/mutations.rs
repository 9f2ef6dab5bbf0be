//! Faults planted one at a time, in the engine, in a stock kernel, in a
//! dispatch and in the table of names: each must be caught.

#![allow(clippy::unwrap_used, reason = "a test stops where something is amiss")]

mod support;

use std::path::{Path, PathBuf};

use metal_sim::{Library, library_from_text, library_of_tree};
use support::{Outcome, Run, build_runner, build_runner_in, toolchain};

const HEAD: &str = "#include <metal_stdlib>\nusing namespace metal;\n";

fn kernel(body: &str, runner: &Path) -> Run {
    Run::text(&format!("{HEAD}{body}"), "k").built_with(&[], runner)
}

/// What the engine must get right, as one comparable text.
fn behaviour(runner: &Path) -> String {
    let collectives = "[[kernel]] void k(device float* y, uint i [[thread_position_in_grid]], uint l [[thread_position_in_threadgroup]]) {
            threadgroup float t[96], u[96];
            t[l] = i;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            float s = t[95 - l] + (isnan(u[l]) ? 0.25 : 0.0);
            if (l % 5 == 4) { y[i] = s; return; }
            volatile float4 a = float4(s); // an aligned store to the lane's stack
            s += simd_sum(s); s += simd_sum(float(l)) + simd_shuffle_xor(a.y, 1);
            s += quad_sum(s); s += quad_sum(s + l);
            y[i] = s;
        }";
    let diverges = "[[kernel]] void k(device float* y, uint i [[thread_position_in_grid]]) {
            if (i % 2) y[i] = simd_sum(y[i]); else y[i] = simd_max(y[i]);
        }";
    let stuck = "[[kernel]] void k(device float* y, uint i [[thread_position_in_grid]]) {
            if (i % 64 < 40) threadgroup_barrier(mem_flags::mem_none); y[i] = simd_max(y[i]);
        }";
    let unbound =
        "[[kernel]] void k(device float* y, device float* a, device float* b) { y[0] = b[3]; }";
    let past = "[[kernel]] void k(device float* y, threadgroup float* t [[threadgroup(0)]]) { t[20000] = 1; y[0] = t[20000]; }";
    let deep = "inline int f(device float* y, int n) { volatile int a[900]; a[n % 900] = y[0]; return n == 0 ? a[0] : f(y, n - 1) + a[n % 900]; }
        [[kernel]] void k(device float* y) { y[0] = f(y, 500); }";
    let mut text = String::new();
    for (source, how) in [
        (collectives, "threads 500 1 1 group 96 1 1 workers 2"),
        (collectives, "threads 500 1 1 group 96 1 1 reverse"),
        (collectives, "threads 500 1 1 group 96 1 1 order sequential"),
        (diverges, "group 64 1 1"),
        (stuck, "group 64 1 1"),
        (unbound, "group 1 1 1"),
        (past, "group 1 1 1 local 0 64"),
        (past, "group 1 1 1 local 0 40000"),
        (deep, "group 1 1 1"),
    ] {
        let run = kernel(source, runner)
            .buffer(0, &[0.5f32; 576])
            .with(how)
            .with("limit 5");
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.go()));
        match outcome.map(|outcome| (outcome.fault.is_some(), outcome)) {
            Ok((true, outcome)) => text += &format!("{:?}\n", outcome.fault()),
            Ok((false, outcome)) => text += &format!("{:?}\n", outcome.get::<u32>(0)),
            Err(_) => text += "crashed\n",
        }
    }
    text
}

#[test]
fn faults_in_the_engine() {
    let correct = behaviour(&build_runner("-mutation-none", &[]));
    assert!(!correct.contains("crashed"), "{correct}");
    let mutations = [
        ("engine.cpp", "  e.lanes.simd_generation[simdgroup]++;", ""),
        ("engine.cpp", "  e.lanes.quad_generation[quad]++;", ""),
        (
            "engine.cpp",
            "mask = 0xfu << (quad % 8 * 4)",
            "mask = 0x7u << (quad % 8 * 4)",
        ),
        (
            "engine.cpp",
            "g.site != site && !same_site(*g.site, *site)",
            "false",
        ),
        (
            "engine.cpp",
            "memset(lanes->threadgroup_memory, 0xff, rounded);",
            "memset(lanes->threadgroup_memory, 0, rounded);",
        ),
        (
            "engine.cpp",
            "threadgroup_bytes > e.options.threadgroup_limit",
            "false",
        ),
        (
            "engine.cpp",
            "if (--e.simd[s].live && e.simd[s].arrived == e.simd[s].live)",
            "if (--e.simd[s].live && false)",
        ),
        (
            "engine.cpp",
            "  for (uint32_t s = 0; s < e.simdgroups; ++s) {\n    mark_ready(e, s, e.waiting_group[s]);",
            "  for (uint32_t s = 0; s < 1; ++s) {\n    mark_ready(e, s, e.waiting_group[s]);",
        ),
        (
            "engine.cpp",
            "e.reserved + e.guarded * e.stack_stride, e.page, PROT_NONE",
            "e.reserved + e.guarded * e.stack_stride, e.page, PROT_READ | PROT_WRITE",
        ),
        (
            "engine.cpp",
            "uint32_t slot = uint32_t(offset / l.kUnboundBytes);",
            "uint32_t slot = 1;",
        ),
        ("context.cpp", "kFrameWords =\n    9;", "kFrameWords = 8;"),
    ];
    let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("engine");
    for (i, (file, from, to)) in mutations.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["engine.cpp", "context.cpp", "engine.h", "context.h"] {
            let mut text = std::fs::read_to_string(engine.join(name)).unwrap();
            if name == file {
                assert!(text.contains(from), "{file} has no {from:?}");
                text = text.replacen(from, to, 1);
            }
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let runner = build_runner_in(folder.path(), &format!("-mutation-{i}"), &["-w"]);
        assert_ne!(behaviour(&runner), correct, "survived: {from}");
    }
}

fn tree() -> PathBuf {
    std::env::var_os("METAL_SIM_MLX").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vendor/mlx"),
        PathBuf::from,
    )
}

const N: usize = 16;
const K: usize = 1024;

/// One row through `affine_qmv_fast` at 4 bits, all inputs ones: each output
/// is the sum of its row's codes times the scale, plus the biases.
fn product(library: &Path, how: impl Fn(Run) -> Run) -> Outcome {
    let w: Vec<u32> = (0..N * K / 8)
        .map(|i| (i as u32).wrapping_mul(2_654_435_761))
        .collect();
    let x: Vec<f32> = (0..2 * K).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect();
    let scales: Vec<f32> = (0..N * K / 64).map(|i| 0.5 + (i % 5) as f32).collect();
    let biases: Vec<f32> = (0..N * K / 64).map(|i| (i % 3) as f32 - 1.0).collect();
    let run = Run::library(library, "mutant")
        .metered()
        .buffer(0, &w)
        .buffer(1, &scales)
        .buffer(2, &biases)
        .buffer(3, &x)
        .buffer(4, &[f32::NAN; 2 * N])
        .bytes(5, K as i32)
        .bytes(6, N as i32)
        .with("groups 2 2 1 group 32 2 1");
    how(run).go()
}

fn summary(outcome: &Outcome) -> String {
    match &outcome.fault {
        Some(fault) => format!("{fault:?}"),
        None => format!(
            "{:?} {:?} {:?}",
            outcome.get::<u32>(4),
            outcome.loaded,
            outcome.written[&4]
        ),
    }
}

#[test]
#[ignore = "needs MLX's tree"]
fn faults_in_a_stock_kernel_and_its_dispatch() {
    let all = Library::read(&library_of_tree(&toolchain(), &tree()).unwrap()).unwrap();
    let source = &all
        .sources()
        .iter()
        .find(|source| source.file == "quantized.metal")
        .unwrap()
        .text;
    let mutant = |from: &str, to: &str| {
        assert!(source.contains(from), "no {from:?}");
        let text = format!(
            "{}\ntemplate [[host_name(\"mutant\")]] [[kernel]] decltype(affine_qmv_fast<float, 64, 4, false, false, false, 4>) affine_qmv_fast<float, 64, 4, false, false, false, 4>;\n",
            source.replace(from, to)
        );
        library_from_text(&toolchain(), &text).unwrap()
    };
    let stock = mutant("U sum = 0;", "U sum = 0;");
    let correct = summary(&product(&stock, |run| run));
    assert!(!correct.contains("code"), "{correct}");
    for (from, to) in [
        (
            "x_thread[i + 1] = x[i + 1] / 16.0f;",
            "x_thread[i + 1] = x[i + 1] / 8.0f;",
        ),
        (
            "x_thread[4 * i + 3] * (ws[i] & 0xf000)",
            "x_thread[4 * i + 3] * (ws[i] & 0x7000)",
        ),
        (
            "sum += U(x[i]) + U(x[i + 1]) + U(x[i + 2]) + U(x[i + 3]);",
            "sum += U(x[i]) + U(x[i + 1]) + U(x[i + 2]);",
        ),
        (
            "scales += out_row * in_vec_size_g + simd_lid / scale_step_per_thread;",
            "scales += out_row * in_vec_size_g + simd_lid;",
        ),
        (
            "result[row] = simd_sum(result[row]);",
            "result[row] = simd_max(result[row]);",
        ),
        (
            "y += tid.x * out_vec_size + out_row;",
            "y += tid.x * out_vec_size + out_row + 1;",
        ),
        (
            "ws += block_size * bytes_per_pack / pack_factor;",
            "ws += block_size * bytes_per_pack;",
        ),
        (
            "auto wl = (const device uint8_t*)(ws + src * in_vec_size_w);",
            "auto wl = (const device uint8_t*)(ws + row * in_vec_size_w); if (wl[0] == 255) result[row] += wl[1] * 0;",
        ),
    ] {
        assert_ne!(
            summary(&product(&mutant(from, to), |run| run)),
            correct,
            "survived: {from}"
        );
    }
    let wrong_dispatch: [(&str, &dyn Fn(Run) -> Run); 5] = [
        ("a grid that misses rows", &|run| run.with("groups 2 1 1")),
        ("one simdgroup for two", &|run| run.with("group 32 1 1")),
        ("scales and biases swapped", &|run| {
            run.buffer(1, &[1f32; N * K / 64])
                .buffer(2, &[0.5f32; N * K / 64])
        }),
        ("a buffer that is too short", &|run| {
            run.buffer(0, &vec![1u32; N * K / 8 - 1])
        }),
        ("the wrong inner size", &|run| run.bytes(5, K as i32 / 2)),
    ];
    for (what, how) in wrong_dispatch {
        assert_ne!(summary(&product(&stock, how)), correct, "survived: {what}");
    }
    // The table: a tile of 6 that upstream does not instantiate.
    assert!(
        all.entry("affine_qmv_wide_float_gs_64_b_4_nv_6_kl_8_batch_0")
            .is_none()
    );
}
