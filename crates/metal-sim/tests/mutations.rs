//! Plants faults one at a time in the engine, in the shim, in the table of names, in a stock kernel
//! and in a dispatch. Each must be caught. crates/metal-sim/docs/planted-faults.md lists them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use metal_sim::{Compiler, Error, Library, Options, library_from_text, library_of_tree};
use support::{Outcome, Run, build_runner, build_runner_in, compiler, runner, toolchain};

const HEAD: &str = "#include <metal_stdlib>\nusing namespace metal;\n";

fn kernel(body: &str, runner: &Path) -> Run {
    Run::text(&format!("{HEAD}{body}"), "k").built_with(&[], runner)
}

/// The behaviour that the engine must get right, as one comparable text.
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
            if (i % 64 < 40) threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = simd_max(y[i]);
        }";
    let unbound =
        "[[kernel]] void k(device float* y, device float* a, device float* b) { y[0] = b[3]; }";
    let past = "[[kernel]] void k(device float* y, threadgroup float* t [[threadgroup(0)]]) { t[20000] = 1; y[0] = t[20000]; }";
    let deep = "template <int n> [[gnu::noinline]] int f(device float* y) {
            volatile int a[900]; int i = n + int(y[0]); a[i] = y[0]; // else one element is left of it
            if constexpr (n == 0) return a[i]; else return f<n - 1>(y) + a[i];
        }
        [[kernel]] void k(device float* y) { y[0] = f<500>(y); }";
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
        let runner = build_runner_in(
            compiler(),
            folder.path(),
            &format!("-mutation-{i}"),
            &["-w"],
        );
        assert_ne!(behaviour(&runner), correct, "survived: {from}");
    }
}

/// Checks the shim with 70 threads in threadgroups of 64.
const PROBE: &str =
    "[[kernel]] void k(device const float* x, device float* y, device atomic_uint* n,
        uint i [[thread_position_in_grid]], uint l [[thread_position_in_threadgroup]],
        uint w [[threads_per_threadgroup]]) {
    threadgroup float t[64];
    threadgroup uint first;
    if (l == 0) { first = i; }
    t[l] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = t[w - 1 - l] + first;
    y[70 + i] = simd_sum(x[i]);
    y[140 + i] = simd_prefix_exclusive_sum(1.0f);
    y[210 + i] = atomic_fetch_add_explicit(&n[i], 5u, memory_order_relaxed);
    simdgroup_float8x8 m(2.0f), p;
    simdgroup_load(p, x);
    simdgroup_multiply(m, p, m);
    if (w == 64) { simdgroup_store(m, y + 350); }
    if (i % 3 == 0) { y[280 + i] = 0; return; }
    y[280 + i] = simd_sum(1.0f);
}";

/// The probe's correct result: computed here, not by the shim.
fn probed(x: &[f32]) -> Vec<f32> {
    let mut y = vec![0.0; 414];
    for i in 0..70 {
        let (start, size) = if i < 64 { (0, 64) } else { (64, 6) };
        y[i] = x[start + size - 1 - (i - start)] + start as f32;
        let group = i / 32 * 32;
        // The butterfly, without the absent lanes.
        let mut sums: Vec<Option<f32>> = (group..group + 32).map(|j| x.get(j).copied()).collect();
        for step in [16, 8, 4, 2, 1] {
            for lane in 0..step {
                sums[lane] = match (sums[lane], sums[lane + step]) {
                    (Some(a), Some(b)) => Some(a + b),
                    (one, other) => one.or(other),
                };
            }
        }
        y[70 + i] = sums[0].unwrap();
        y[140 + i] = (i - group) as f32;
        y[210 + i] = 7.0;
        let stayed = (group..(group + 32).min(70)).filter(|j| j % 3 != 0).count();
        y[280 + i] = if i % 3 == 0 { 0.0 } else { stayed as f32 };
    }
    for i in 0..64 {
        y[350 + i] = 2.0 * x[i];
    }
    y
}

/// The probe's result with the shim of a cache, faults included.
fn probe(cache: &Path, shim: Option<&Path>, metered: bool) -> String {
    // Values of many magnitudes, so that the order of a sum shows.
    let x: Vec<f32> = (1..=70u32)
        .map(|i| i.wrapping_mul(2_654_435_761))
        .map(|z| ((z >> 8) as f32 - 8_388_608.0) * f32::powi(2.0, (z >> 4) as i32 % 12 - 20))
        .collect();
    // Room for threads that a faulty shim may add at the edge.
    let run = kernel(PROBE, runner())
        .cached_in(cache, shim)
        .buffer(0, &[&x[..], &[0.0; 58]].concat())
        .buffer(1, &[0f32; 414])
        .buffer(2, &[7u32; 128])
        .with("threads 70 1 1 group 64 1 1");
    if !metered {
        let outcome = run.go();
        return match &outcome.fault {
            Some(fault) => fault.message.clone(),
            None if outcome.get::<u32>(2)[..70] != [12; 70] => "another count".to_owned(),
            None if outcome.get::<f32>(1) != probed(&x) => "other values".to_owned(),
            None => "as expected".to_owned(),
        };
    }
    // Each of the two whole simdgroups loads the matrix.
    let outcome = run.metered().go();
    match (&outcome.fault, outcome.stored.get(&1)) {
        (Some(fault), _) => fault.message.clone(),
        (None, Some(1912)) => "as expected".to_owned(),
        (None, stored) => format!("{stored:?} bytes stored"),
    }
}

#[test]
fn faults_in_the_shim() {
    let mutations = [
        (
            "simd.h",
            "for (uint32_t step = 16; step; step /= 2)\n        for (uint32_t i = 0; i < step; ++i)",
            "for (uint32_t step = 1; step < 32; step *= 2)\n        for (uint32_t i = 0; i < 32; i += 2 * step)",
        ),
        (
            "simd.h",
            "i < all.lane() + (inclusive ? 1 : 0)",
            "i < all.lane() + 1",
        ),
        (
            "lane.h",
            "board().tag[parity()][base_ + lane] == generation_",
            "true",
        ),
        (
            "lane.h",
            "uint32_t offset = (local_bytes + align - 1) / align * align;",
            "uint32_t offset = 0;",
        ),
        (
            "kernel.h",
            "left < dispatch->threads_per_threadgroup[i]",
            "false",
        ),
        ("matrix.h", "(quad & 2) * 2", "(quad & 2)"),
        (
            "atomic.h",
            "return old;\n}\n} // namespace mtlsim",
            "return next(old);\n}\n} // namespace mtlsim",
        ),
        (
            "meter.h",
            "if (!(c.const_buffers >> i & 1))",
            "if (c.const_buffers >> i & 1)",
        ),
    ];
    // A separate cache for each shim.
    let caches = tempfile::tempdir().unwrap();
    let correct = caches.path().join("correct");
    assert_eq!(probe(&correct, None, false), "as expected");
    assert_eq!(probe(&correct, None, true), "as expected");
    let shim = std::fs::read_dir(&correct)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("shim-")
        })
        .unwrap();
    for (i, (file, from, to)) in mutations.into_iter().enumerate() {
        let cache = caches.path().join(i.to_string());
        let copy = caches.path().join(format!("shim-{i}"));
        support::run(Command::new("cp").arg("-r").arg(&shim).arg(&copy));
        let header = copy.join("msl/mtlsim").join(file);
        let text = std::fs::read_to_string(&header).unwrap();
        assert!(text.contains(from), "{file} has no {from:?}");
        std::fs::write(&header, text.replacen(from, to, 1)).unwrap();
        let found = probe(&cache, Some(&copy), file == "meter.h");
        println!("{file}: {from}: {found}");
        assert_ne!(found, "as expected", "survived: {from}");
    }
}

#[test]
fn faults_in_the_table() {
    let scaled = |instantiations: &str| {
        let text = format!(
            "{HEAD}template <typename T, int n> [[kernel]] void scale(device T* x, uint i [[thread_position_in_grid]]) {{ x[i] *= n; }}
            {instantiations}"
        );
        library_from_text(&toolchain(), &text).unwrap()
    };
    let right =
        "template [[host_name(\"by_2\")]] [[kernel]] decltype(scale<float, 2>) scale<float, 2>;";
    let run = |library: &Path| {
        Run::library(library, "by_2")
            .buffer(0, &[1f32; 32])
            .with("group 32 1 1")
            .go()
            .get::<f32>(0)
    };
    assert_eq!(run(&scaled(right)), [2.0; 32]);
    // The name refers to another instantiation.
    assert_eq!(run(&scaled(&right.replace(", 2>", ", 3>"))), [3.0; 32]);
    // A name that does not exist, such as a tile that the host requests but nothing instantiates.
    let error = Compiler::new(toolchain(), Options::default())
        .kernel(&scaled(&right.replace("by_2", "by_3")), "by_2")
        .unwrap_err();
    assert!(matches!(error, Error::NoKernel { .. }), "{error}");
}

fn tree() -> PathBuf {
    std::env::var_os("METAL_SIM_MLX").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vendor/mlx"),
        PathBuf::from,
    )
}

const N: usize = 16;
const K: usize = 1024;

/// One row through `affine_qmv_fast` at 4 bits, all inputs 1: each output is the sum of its row's codes times the
/// scale, plus the biases.
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
}
