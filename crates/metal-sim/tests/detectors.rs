//! What the checked and the tracked variants find, each in a kernel that has the fault and, without it, passes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use metal_sim::Variant;
use support::{Fault, Outcome, Run};

const HEAD: &str = "#include <metal_stdlib>
using namespace metal;
# 1 \"mlx/k.metal\"
";

/// A kernel of two threadgroups of 64 lanes with 128 floats to read and to write.
fn run(variant: Variant, body: &str) -> Option<Fault> {
    with(variant, body, "local 0 256 groups 2 1 1 group 64 1 1").fault
}

fn with(variant: Variant, body: &str, options: &str) -> Outcome {
    let source = format!(
        "{HEAD}[[kernel]] void k(device const float* x, device float* y, device atomic<uint>* n, constant char* c,
            device const atomic<uint>* r [[buffer(4)]], threadgroup float* d [[threadgroup(0)]],
            uint i [[thread_position_in_grid]], uint l [[thread_position_in_threadgroup]]) {{
        {body} }}"
    );
    Run::text(&source, "k")
        .buffer(0, &[1f32; 128])
        .buffer(1, &[0f32; 128])
        .buffer(2, &[0u32; 4])
        .buffer(3, &[0u8; 32])
        .buffer(4, &[0u32; 4])
        .with(options)
        .looking_for(variant)
        .go()
}

/// The body has `FAULT` in the place of the first text, and is right with the second.
fn found(variant: Variant, code: &str, words: &str, body: &str, fault: &str, right: &str) {
    let clean = run(variant, &body.replace("FAULT", right));
    assert!(clean.is_none(), "{right}: {clean:?}");
    let planted = run(variant, &body.replace("FAULT", fault)).unwrap_or_else(|| panic!("{fault}"));
    assert_eq!(planted.code, code, "{fault}: {planted:?}");
    assert!(planted.message.contains(words), "{fault}: {planted:?}");
}

#[test]
fn races_in_threadgroup_memory() {
    let body = "threadgroup float t[64]; t[l] = x[i]; FAULT; y[i] = t[63 - l];";
    let right = "threadgroup_barrier(mem_flags::mem_threadgroup)";
    for fault in [
        "threadgroup_barrier(mem_flags::mem_none)",
        "threadgroup_barrier(mem_flags::mem_device)",
        "simdgroup_barrier(mem_flags::mem_threadgroup)",
    ] {
        let words = "no barrier with mem_flags::mem_threadgroup is between";
        found(Variant::Checked, "RACE", words, body, fault, right);
    }
    // Of one simdgroup, its own barrier is enough.
    let body = "threadgroup float t[64]; t[l] = x[i]; FAULT; y[i] = t[l ^ 1];";
    let right = "simdgroup_barrier(mem_flags::mem_threadgroup)";
    found(Variant::Checked, "RACE", "lane ", body, "", right);
    // What was read is written before all have read it.
    let body = "d[l] = 1; threadgroup_barrier(mem_flags::mem_threadgroup); float v = d[min(l + 1, 63u)]; FAULT; d[l] = v; y[i] = v;";
    let right = "threadgroup_barrier(mem_flags::mem_threadgroup)";
    found(Variant::Checked, "RACE", "loaded", body, "", right);
    // Several lanes read it, of several simdgroups.
    let body = "if (l == 0) d[0] = 1; threadgroup_barrier(mem_flags::mem_threadgroup); float v = d[0]; FAULT; if (l == 40) d[0] = 2; y[i] = v;";
    for fault in ["", "simdgroup_barrier(mem_flags::mem_threadgroup)"] {
        let words = "no barrier with mem_flags::mem_threadgroup is between";
        found(Variant::Checked, "RACE", words, body, fault, right);
    }
}

#[test]
fn barriers_are_counted_further_than_kernels_loop() {
    // One pass more or less than the numbers of a cell.
    let body = "threadgroup float s; if (l == 0) s = x[0]; float a = 0;
        for (int k = 0; k < 8200; ++k) { threadgroup_barrier(mem_flags::mem_threadgroup); a += s; }
        FAULT; if (l == 63) s = a; y[i] = a;";
    let right = "threadgroup_barrier(mem_flags::mem_threadgroup)";
    found(Variant::Checked, "RACE", "lanes", body, "", right);
    let body = "threadgroup float s; if (l == 0) s = x[0]; float a = 0; threadgroup_barrier(mem_flags::mem_threadgroup);
        for (int k = 0; k < 8200; ++k) { simdgroup_barrier(mem_flags::mem_threadgroup); a += s; }
        FAULT; if (l == 63) s = a; y[i] = a;";
    found(Variant::Checked, "RACE", "lanes", body, "", right);
    // What is left of the numbers of a buffer is let be.
    let body = "y[i] = x[i]; for (int k = 0; k < FAULT; ++k) threadgroup_barrier(mem_flags::mem_device); y[i ^ 1] = 3;";
    for passes in [1, 8191, 8192, 8200] {
        let found = run(
            Variant::Checked,
            &body.replace("FAULT", &passes.to_string()),
        );
        assert!(found.is_none(), "{passes}: {found:?}");
    }
}

#[test]
fn atomic_operations_are_accesses() {
    let right = "atomic_fetch_add_explicit(n + 3, 1u, memory_order_relaxed)";
    for (code, words, fault) in [
        (
            "OUT_OF_RANGE",
            "argument n (buffer index 2)",
            "atomic_fetch_add_explicit(n + 4, 1u, memory_order_relaxed)",
        ),
        (
            "OUT_OF_RANGE",
            "argument n (buffer index 2)",
            "y[i] = atomic_load_explicit(n + 4, memory_order_relaxed)",
        ),
        (
            "CONST_WRITE",
            "store through a const argument (buffer index 4, byte 8)",
            "atomic_store_explicit((device atomic<uint>*)r + 2, 1u, memory_order_relaxed)",
        ),
        (
            "OUT_OF_RANGE",
            "outside every threadgroup array, 4 bytes",
            "atomic_fetch_or_explicit((threadgroup atomic<uint>*)d + 64, 1u, memory_order_relaxed)",
        ),
    ] {
        found(Variant::Checked, code, words, "FAULT;", fault, right);
    }
    // Their bytes are counted: each addition loads once and stores once.
    let options = "local 0 256 groups 2 1 1 group 64 1 1";
    let counted = with(Variant::Checked, &format!("{right};"), options);
    assert_eq!(
        (counted.loaded[&2], counted.stored[&2]),
        (512, 512),
        "{counted:?}"
    );
}

#[test]
fn races_in_device_memory() {
    let atomic = "atomic_fetch_add_explicit(n, 1u, memory_order_relaxed)";
    let plain = "*(device uint*)n += 1";
    let words = "argument n (buffer index 2)";
    found(Variant::Checked, "RACE", words, "FAULT;", plain, atomic);
    // Between threadgroups no barrier helps, and one of them is enough.
    let body = "if (l == 0) { FAULT; }";
    found(
        Variant::Checked,
        "RACE",
        "another threadgroup stored",
        body,
        plain,
        atomic,
    );
    let body = "if (l == 0) { if (i == 0) *(device uint*)n = 1; else FAULT; }";
    found(Variant::Checked, "RACE", words, body, atomic, "y[0] = 0");
    // Lanes at an edge may store the same.
    found(
        Variant::Checked,
        "RACE",
        "this lane stores what lane",
        "y[min(l, 5u) + i / 64 * 64] = FAULT;",
        "l",
        "1",
    );
    // Of one threadgroup, the device's flag orders.
    let body = "y[i] = x[i]; FAULT; float v = y[i ^ 32]; threadgroup_barrier(mem_flags::mem_device); y[i] = v;";
    let right = "threadgroup_barrier(mem_flags::mem_device)";
    let fault = "threadgroup_barrier(mem_flags::mem_threadgroup)";
    let words = "no barrier with mem_flags::mem_device is between";
    found(Variant::Checked, "RACE", words, body, fault, right);
}

#[test]
fn misaligned_accesses() {
    let body = "y[i] = FAULT;";
    let (fault, right) = ("*(constant float*)(c + 2)", "*(constant float*)(c + 4)");
    let words =
        "'const float' at an address that is 2 past a multiple of 4 bytes, at mlx/k.metal:4";
    found(Variant::Checked, "UNDEFINED", words, body, fault, right);
    let (fault, right) = (
        "dot(*(constant float4*)(c + 4), float4(1))",
        "dot(*(constant float4*)(c + 16), float4(1))",
    );
    found(
        Variant::Checked,
        "UNDEFINED",
        "multiple of 16",
        body,
        fault,
        right,
    );
}

#[test]
fn arrays_out_of_bounds() {
    let body =
        "threadgroup float a[48], b[16]; a[l % 48] = 1; b[l % 16] = 2; threadgroup float* p = a;
        threadgroup_barrier(mem_flags::mem_threadgroup); FAULT; y[i] = 0;";
    let past = "access outside every threadgroup array";
    for fault in [
        "if (l == 0) p[48] = 1",
        "if (l == 0) p[-1] = 1",
        "if (l == 0) d[64] = 1",
    ] {
        let right = "if (l == 0) p[47] = d[63]";
        found(Variant::Checked, "OUT_OF_RANGE", past, body, fault, right);
    }
    let body = "float a[4] = {x[i], 1, 2, 3}; FAULT;";
    let words = "index 4 of an array of type 'float[4]' at mlx/k.metal:4";
    found(
        Variant::Checked,
        "OUT_OF_RANGE",
        words,
        body,
        "y[i] = a[l % 5]",
        "y[i] = a[l % 4]",
    );
    // Through a pointer the processor finds it, and no line is known.
    let fault = "thread float* p = a; y[i] = p[l % 5]";
    found(
        Variant::Checked,
        "UNDEFINED",
        "bounds of a local array",
        body,
        fault,
        "thread float* p = a; y[i] = p[l % 4]",
    );
}

#[test]
fn values_of_lanes_that_take_no_part() {
    let body = "if (l % 32 == 31) return; float v = FAULT; y[i] = v;";
    let right = "simd_broadcast(x[i], 30) + simd_shuffle_up(x[i], 1) + simd_max(x[i]) + quad_broadcast(x[i], 2)";
    for fault in [
        "simd_broadcast(x[i], 31)",
        "simd_shuffle(x[i], 40)",
        "simd_shuffle_down(x[i], 1)",
        "quad_shuffle_xor(x[i], 1)",
    ] {
        let words = "which has returned or does not exist";
        found(Variant::Checked, "INACTIVE", words, body, fault, right);
    }
    // Tracked kernels let it pass as long as nobody uses the value.
    let fault = "simd_shuffle_down(x[i], 1)";
    let words = "an uninitialized value is stored at byte";
    found(Variant::Tracked, "UNINITIALISED", words, body, fault, right);
    let unused = body.replace("FAULT", fault).replace("y[i] = v", "y[i] = 0");
    let clean = run(Variant::Tracked, &unused);
    assert!(clean.is_none(), "{clean:?}");
}

#[test]
fn values_that_nobody_wrote() {
    let body = "float a[4]; for (int k = 0; k < FAULT; ++k) a[k] = x[i]; y[i] = a[0] + a[1] + a[2] + a[3];";
    let words = "of the buffer at index 1: part of the local variable a";
    found(
        Variant::Tracked,
        "UNINITIALISED",
        words,
        body,
        "min(3, int(x[0]) + 2)",
        "min(4, int(x[0]) + 3)",
    );
    let body = "float a[4]; a[l % FAULT] = x[i]; if (a[l % 4] > 2) y[i] = 1;";
    found(
        Variant::Tracked,
        "UNINITIALISED",
        "a branch or an address depends",
        body,
        "3",
        "4",
    );
    let body = "threadgroup float t[64]; if (l < FAULT) t[l] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = t[63 - l];";
    found(
        Variant::Tracked,
        "UNINITIALISED",
        "part of threadgroup memory",
        body,
        "63",
        "64",
    );
    // What is copied, or computed and left alone, is no fault.
    let clean = run(
        Variant::Tracked,
        "float a[4], b[4]; a[0] = x[i]; for (int k = 0; k < 4; ++k) b[k] = a[k] * 2; y[i] = b[0] + exp(b[0]);",
    );
    assert!(clean.is_none(), "{clean:?}");
}

/// A threadgroup does not take what the last one left of a call's arguments for its own.
#[test]
fn arguments_that_nobody_wrote_stay_in_their_threadgroup() {
    // The bytes behind `b` are nobody's.
    let body = "struct P { uint a; ushort b; }; struct O { static P same(P p) { return p; } };
        P p{i, 1}; y[i] = O::same(p).b;";
    let options = "local 0 256 groups 3 1 1 group 32 1 1 limit 20";
    let clean = with(Variant::Tracked, body, options);
    assert!(clean.fault.is_none(), "{clean:?}");
}

/// An output is read before anybody wrote it. What this dispatch wrote itself may be read, and so may other buffers.
#[test]
fn an_own_output_that_nobody_wrote() {
    let options = "local 0 256 groups 2 1 1 group 64 1 1 unwritten 1";
    let clean = with(
        Variant::Checked,
        "y[i] = x[i]; y[i] += 1; atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);",
        options,
    );
    assert!(clean.fault.is_none(), "{clean:?}");
    let planted = with(Variant::Checked, "y[i] += x[i];", options);
    assert_eq!(planted.fault().code, "UNINITIALISED", "{planted:?}");
    let words = "load of an unwritten byte: byte 0 of argument y (buffer index 1)";
    assert!(planted.fault().message.contains(words), "{planted:?}");
}
