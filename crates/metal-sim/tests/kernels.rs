//! Each feature of Metal that MLX's kernels use, in the smallest kernel that shows it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use half::{bf16, f16};
use metal_sim::{Contraction, Variant};
use support::{Outcome, Run};

const HEAD: &str = "#include <metal_stdlib>\nusing namespace metal;\n";

fn kernel(body: &str) -> Run {
    Run::text(&format!("{HEAD}{body}"), "k")
}

fn floats(n: usize) -> Vec<f32> {
    // Values of many magnitudes and both signs, so that the order of a sum shows.
    let mut state = 12345u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    (0..n)
        .map(|_| (next() as f32 - 8_388_608.0) * f32::powi(2.0, (next() % 12) as i32 - 20))
        .collect()
}

#[test]
fn threadgroup_variables_are_shared_and_barriers_order_them() {
    let source = "[[kernel]] void k(device int* x, uint i [[thread_position_in_threadgroup]],
            uint g [[threadgroup_position_in_grid]]) {
        threadgroup int a[256], b;
        if (i == 0) b = g * 1000;
        a[i] = x[g * 256 + i];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        x[g * 256 + i] = a[255 - i] + b;
    }";
    let input: Vec<i32> = (0..256 * 20).collect();
    let expected: Vec<i32> = (0..20)
        .flat_map(|g| (0..256).rev().map(move |i| g * 256 + i + g * 1000))
        .collect();
    for how in ["workers 1", "workers 3", "reverse"] {
        let out = kernel(source)
            .buffer(0, &input)
            .with("groups 20 1 1 group 256 1 1")
            .with(how)
            .go();
        assert_eq!(out.get::<i32>(0), expected, "{how}");
    }
    let text = kernel(source).describe();
    assert!(text.contains("local_bytes 1028"), "{text}");
}

#[test]
fn a_division_by_zero_is_a_fault_that_names_its_line() {
    let run = |by: &str| {
        let source = format!(
            "# 1 \"mlx/k.metal\"
            [[kernel]] void k(device int* x, device int* y, uint i [[thread_position_in_grid]]) {{
                x[i] = x[i] {by} y[i];
            }}"
        );
        let divisors: Vec<i32> = (0..64).map(|i| if i == 40 { 0 } else { i + 1 }).collect();
        kernel(&source)
            .buffer(0, &[i32::MIN; 64])
            .buffer(1, &divisors)
            .with("groups 2 1 1 group 32 1 1")
            .go()
    };
    for by in ["/", "%"] {
        let fault = run(by).fault.unwrap();
        assert_eq!(
            (fault.code, fault.message.as_str()),
            ("DIVISION", "integer division by zero at mlx/k.metal:2")
        );
    }
    // The least integer divided by -1 does not fit: the processor reports it.
    if cfg!(target_arch = "x86_64") {
        let fault = kernel("[[kernel]] void k(device int* x) { x[0] = x[0] / x[1]; }")
            .buffer(0, &[i32::MIN, -1])
            .go()
            .fault
            .unwrap();
        assert_eq!(fault.code, "DIVISION");
        assert!(fault.message.contains("by -1"), "{}", fault.message);
    }
}

/// Without this, clang assumes that an endless loop without effects is never reached.
#[test]
fn an_endless_loop_stays_one() {
    let run = kernel("[[kernel]] void k(device int* x) { x[0] = 1; while (true) {} }")
        .buffer(0, &[0])
        .with("limit 1");
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.go()));
    let message = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert!(message.starts_with("None"), "ended: {message}");
}

#[test]
fn a_missing_barrier_shows_under_the_other_schedule() {
    let run = || {
        kernel(
            "[[kernel]] void k(device int* x, uint i [[thread_position_in_threadgroup]]) {
                threadgroup int a[64];
                a[i] = x[i];
                x[i] = a[63 - i];
            }",
        )
        .buffer(0, &(0..64).collect::<Vec<i32>>())
        .with("group 64 1 1")
    };
    assert_ne!(
        run().go().get::<i32>(0),
        run().with("reverse").go().get::<i32>(0)
    );
}

/// `simd_sum` in the engine's three orders.
fn reference_sum(mut v: Vec<f32>, order: &str) -> f32 {
    match order {
        "butterfly" => {
            for step in [16, 8, 4, 2, 1] {
                for i in 0..step {
                    v[i] += v[i + step];
                }
            }
        }
        "neighbours" => {
            for step in [1, 2, 4, 8, 16] {
                for i in (0..32).step_by(2 * step) {
                    v[i] += v[i + step];
                }
            }
        }
        _ => {
            for i in 1..32 {
                v[0] += v[i];
            }
        }
    }
    v[0]
}

#[test]
fn simd_sum_follows_the_order_asked_for() {
    let x = floats(64);
    let mut bits = Vec::new();
    for order in ["butterfly", "neighbours", "sequential"] {
        let out = kernel(
            "[[kernel]] void k(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                uint i [[thread_position_in_grid]]) { y[i] = simd_sum(x[i]); }",
        )
        .buffer(0, &x)
        .buffer(1, &[0f32; 64])
        .with(&format!("group 64 1 1 order {order}"))
        .go()
        .get::<f32>(1);
        for group in 0..2 {
            let expected = reference_sum(x[group * 32..][..32].to_vec(), order);
            assert!(
                out[group * 32..][..32]
                    .iter()
                    .all(|y| y.to_bits() == expected.to_bits()),
                "{order}"
            );
        }
        bits.push(out[0].to_bits());
    }
    assert!(
        bits[0] != bits[1] && bits[1] != bits[2] && bits[0] != bits[2],
        "the orders differ on this input"
    );
}

#[test]
fn lanes_that_have_returned_take_no_part() {
    // The remaining lanes sum among themselves twice; a lane that left must not be counted, whichever slot it used
    // last.
    let source = "[[kernel]] void k(device uint* y, uint i [[thread_position_in_grid]]) {
        uint all = simd_sum(1u);
        if (i % 32 >= 20) { y[i] = all; return; }
        uint some = simd_sum(1u), again = simd_sum(i % 32);
        y[i] = some * 1000 + again;
    }";
    for how in ["workers 1", "reverse"] {
        let out = kernel(source)
            .buffer(0, &[0u32; 64])
            .with("group 64 1 1")
            .with(how)
            .go();
        let expected: Vec<u32> = (0..64)
            .map(|i| if i % 32 >= 20 { 32 } else { 20_190 })
            .collect();
        assert_eq!(out.get::<u32>(0), expected);
    }
}

#[test]
fn shuffles_scans_votes_and_quads() {
    let source = "[[kernel]] void k(device uint* y, uint i [[thread_index_in_simdgroup]], uint q [[thread_index_in_quadgroup]],
            uint n [[quadgroup_index_in_threadgroup]]) {
        device uint* o = y + i * 14;
        o[0] = simd_shuffle(i, 5); o[1] = simd_shuffle_down(i, 3); o[2] = simd_shuffle_up(i, 3); o[3] = simd_shuffle_xor(i, 9);
        o[4] = simd_shuffle_and_fill_up(i, 100u + i, 2); o[5] = simd_shuffle_and_fill_down(i, 100u + i, 2);
        o[6] = simd_prefix_inclusive_sum(i); o[7] = simd_prefix_exclusive_sum(i);
        o[8] = simd_max(i ^ 5); o[9] = simd_min(i + 3);
        o[10] = uint(uint64_t(simd_ballot(i % 2 == 0))); o[11] = simd_any(i == 31) + 2 * simd_all(i < 31);
        o[12] = quad_sum(i); o[13] = q + 10 * n;
    }";
    let out = kernel(source)
        .buffer(0, &[0u32; 32 * 14])
        .with("group 32 1 1")
        .go()
        .get::<u32>(0);
    for i in 0..32u32 {
        let expected = [
            5,
            if i + 3 < 32 { i + 3 } else { i },
            if i >= 3 { i - 3 } else { i },
            i ^ 9,
            // Lanes without a source use the fill values of the lanes at the other end.
            if i >= 2 { i - 2 } else { 130 + i },
            if i < 30 { i + 2 } else { 100 + i - 30 },
            i * (i + 1) / 2,
            i * i.wrapping_sub(1) / 2,
            31,
            3,
            0x5555_5555,
            1,
            4 * (i / 4 * 4) + 6,
            i % 4 + 10 * (i / 4),
        ];
        assert_eq!(&out[i as usize * 14..][..14], expected, "lane {i}");
    }
}

#[test]
fn arguments_by_attribute_in_order_and_as_arrays() {
    let source = "struct Params { int a; float b; int64_t c[2]; };
        [[kernel]] void k(device int64_t* y [[buffer(3)]], const constant Params& p [[buffer(0)]], constant const int n[2],
            constant float& f, uint2 t [[thread_position_in_grid]], ushort lane [[thread_index_in_simdgroup]]) {
            if (t.x == 1 && t.y == 2) { y[0] = p.a; y[1] = int64_t(p.b * f); y[2] = p.c[1]; y[3] = n[0] * 10 + n[1]; y[4] = lane; }
        }";
    let mut params = Vec::new();
    params.extend(7i32.to_le_bytes());
    params.extend(2.5f32.to_le_bytes());
    params.extend(1i64.to_le_bytes());
    params.extend(99i64.to_le_bytes());
    let out = kernel(source)
        .buffer(3, &[0i64; 5])
        .buffer(0, &params)
        .buffer(1, &[4i32, 2])
        .bytes(2, 4.0f32)
        .with("group 4 4 1")
        .go();
    assert_eq!(out.get::<i64>(3), [7, 10, 99, 42, 9]);
}

/// Not only once, when the object is loaded.
#[test]
fn what_follows_from_function_constants_follows_each_time() {
    let source = "constant int a [[function_constant(0)]]; constant int twice = a * 2; static constant int more = twice + a;
        [[kernel]] void k(device int* y [[buffer(0)]]) { y[0] = twice; y[1] = more; }";
    for variant in [Variant::Plain, Variant::Checked] {
        for a in [1, 5] {
            let out = kernel(source)
                .buffer(0, &[0i32, 0])
                .with(&format!("constant 0 29 {a}"))
                .looking_for(variant)
                .go();
            assert_eq!(out.get::<i32>(0), [2 * a, 3 * a], "{:?}", out.fault);
        }
    }
}

#[test]
fn function_constants_and_the_arguments_they_switch() {
    let source = "constant bool has_bias [[function_constant(7)]]; constant int scale [[function_constant(8)]];
        constant uint unset [[function_constant(9)]];
        [[kernel]] void k(device int* y [[buffer(0)]], device const int* bias [[buffer(1), function_constant(has_bias)]]) {
            y[0] = 10 * scale + (has_bias ? bias[0] : bias[0] - 5) + (is_function_constant_defined(unset) ? 1000 : 0);
        }";
    let run = || kernel(source).buffer(0, &[0i32]);
    let with = run()
        .buffer(1, &[3i32])
        .with("constant 7 53 1 constant 8 29 4")
        .go();
    assert_eq!(with.get::<i32>(0), [43]);
    // Switched off: reads zero even if a buffer is bound.
    assert_eq!(
        run()
            .buffer(1, &[3i32])
            .with("constant 7 53 0 constant 8 29 4")
            .go()
            .get::<i32>(0),
        [35]
    );
    assert_eq!(
        run()
            .with("constant 8 29 4 constant 9 33 0")
            .go()
            .get::<i32>(0),
        [1035]
    );
    let wrong = run().with("constant 8 33 4").go();
    assert_eq!(wrong.fault().code, "CONSTANT_TYPE");
    assert!(
        wrong.fault().message.contains("scale (8)"),
        "{}",
        wrong.fault().message
    );
    let text = run().describe();
    assert!(
        text.contains("argument bias index 1 space 0 const 1 bytes 4 reference 0 constant 7"),
        "{text}"
    );
    assert!(
        text.contains("constant scale index 8 type 29 size 4"),
        "{text}"
    );
}

#[test]
fn dynamic_threadgroup_memory_and_its_limit() {
    let source = "[[kernel]] void k(device int* y, threadgroup int* a [[threadgroup(0)]], threadgroup float* b [[threadgroup(1)]],
            uint i [[thread_position_in_threadgroup]]) {
        threadgroup int c[32];
        a[i] = i; b[i] = i * 0.5; c[i] = 7;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        y[i] = a[31 - i] + int(b[0] * 2) + c[(i + 1) % 32];
    }";
    let run = || kernel(source).buffer(0, &[0i32; 32]).with("group 32 1 1");
    let out = run().with("local 0 128 local 1 128").go();
    assert_eq!(
        out.get::<i32>(0),
        (0..32).map(|i| 31 - i + 7).collect::<Vec<i32>>()
    );
    // Without an index, each argument takes the first free one.
    let implicit = source
        .replace(" [[threadgroup(0)]]", "")
        .replace(" [[threadgroup(1)]]", "");
    let out = kernel(&implicit)
        .buffer(0, &[0i32; 32])
        .with("group 32 1 1 local 0 128 local 1 128")
        .go();
    assert_eq!(out.get::<i32>(0)[0], 31 + 7);
    let over = run().with("local 0 32640 local 1 128").go();
    assert_eq!(over.fault().code, "THREADGROUP_MEMORY");
    assert!(
        over.fault().message.contains("32896 bytes"),
        "{}",
        over.fault().message
    );
    // One that was not set at all: beyond the end of what there is.
    assert_eq!(run().with("local 0 128").go().fault().code, "OUT_OF_RANGE");
}

#[test]
fn grids_that_are_no_multiple_of_the_threadgroup() {
    let source = "[[kernel]] void k(device uint* y, uint2 p [[thread_position_in_grid]], uint2 n [[threads_per_grid]],
            uint2 t [[threads_per_threadgroup]], uint2 d [[dispatch_threads_per_threadgroup]], uint2 g [[threadgroups_per_grid]],
            uint s [[simdgroups_per_threadgroup]]) {
        y[p.y * n.x + p.x] = p.x + 100 * p.y + 10000 * t.x + 1000000 * g.x + 100000000 * s + (d.x == 8 ? 0 : 1000000000);
    }";
    let out = kernel(source)
        .buffer(0, &[0u32; 13 * 5])
        .with("threads 13 5 1 group 8 8 1")
        .go()
        .get::<u32>(0);
    for y in 0..5 {
        for x in 0..13 {
            let (width, simdgroups) = if x < 8 { (8, 2) } else { (5, 1) };
            let expected = x + 100 * y + 10_000 * width + 1_000_000 * 2 + 100_000_000 * simdgroups;
            assert_eq!(out[(y * 13 + x) as usize], expected, "{x} {y}");
        }
    }
}

#[test]
fn atomics_across_threadgroups() {
    let source = "#include <metal_atomic>
        [[kernel]] void k(device atomic<uint>* sum, device atomic<float>* f, device atomic_int* m, uint i [[thread_position_in_grid]]) {
            atomic_fetch_add_explicit(sum, i, memory_order_relaxed);
            atomic_fetch_add_explicit(f, 0.5f, memory_order_relaxed);
            atomic_fetch_max_explicit(m, int(i), memory_order_relaxed);
        }";
    let out = kernel(source)
        .buffer(0, &[0u32])
        .buffer(1, &[0f32])
        .buffer(2, &[-5i32])
        .with("groups 400 1 1 group 64 1 1 workers 4")
        .go();
    assert_eq!(out.get::<u32>(0), [(25_600 * 25_599u64 / 2) as u32]);
    assert_eq!(out.get::<f32>(1), [12_800.0]);
    assert_eq!(out.get::<i32>(2), [25_599]);
}

#[test]
fn atomics_of_64_bits_have_a_minimum_and_a_maximum() {
    let out = kernel(
        "[[kernel]] void k(device atomic_ulong* a, uint i [[thread_position_in_grid]]) {
            atomic_max_explicit(a, 1ul << 40 | i, memory_order_relaxed);
            atomic_min_explicit(a + 1, ulong(i) + 7, memory_order_relaxed);
        }",
    )
    .buffer(0, &[0u64, u64::MAX])
    .with("groups 4 1 1 group 32 1 1 workers 2")
    .go();
    assert_eq!(out.get::<u64>(0), [(1 << 40) + 127, 7]);
}

#[test]
fn packed_vectors_have_no_gaps() {
    let out = kernel(
        "struct Row { packed_float3 p; float w; };
        static_assert(sizeof(packed_float3) == 12 && alignof(packed_float3) == 4 && sizeof(Row) == 16, \"\");
        static_assert(sizeof(packed_half3) == 6 && sizeof(packed_uchar4) == 4 && sizeof(packed_long2) == 16, \"\");
        [[kernel]] void k(const device packed_float3* x [[buffer(0)]], device packed_float3* y [[buffer(1)]], device Row* r [[buffer(2)]]) {
            float3 a = x[1];
            packed_float3 b(a), c = packed_float3(1, 2, 3), d = 2 * c;
            b[0] += 10; b.y = c.z; d += b;
            packed_vec<float, 3> e = d - c * 2;
            y[0] = e; y[1] = float3(x[0]) + b; y[2] = packed_float3(float2(c.xy), 9.0);
            r[0].p = -a; r[0].w = float4(b, 1).x + dot(float3(c), a);
        }",
    )
    .buffer(0, &[1f32, 2., 3., 4., 5., 6.])
    .buffer(1, &[0f32; 9])
    .buffer(2, &[0f32; 4])
    .go();
    assert_eq!(out.get::<f32>(1), [14., 3., 6., 15., 5., 9., 1., 2., 9.]);
    assert_eq!(out.get::<f32>(2), [-4., -5., -6., 14. + 32.]);
}

#[test]
fn simdgroup_matrices_multiply() {
    let source = "#include <metal_simdgroup_matrix>
        [[kernel]] void k(device const half* a [[buffer(0)]], device const half* b [[buffer(1)]], device float* c [[buffer(2)]]) {
            simdgroup_matrix<half, 8, 8> A, B; simdgroup_float8x8 C = make_filled_simdgroup_matrix<float, 8>(1.0);
            simdgroup_load(A, a); simdgroup_load(B, b, 8, ulong2(0, 0), true);
            simdgroup_multiply_accumulate(C, A, B, C);
            simdgroup_store(C, c);
        }";
    let a: Vec<f16> = (0..64)
        .map(|i| f16::from_f32((i % 7) as f32 - 3.0))
        .collect();
    let b: Vec<f16> = (0..64)
        .map(|i| f16::from_f32((i % 5) as f32 * 0.5))
        .collect();
    let out = kernel(source)
        .buffer(0, &a)
        .buffer(1, &b)
        .buffer(2, &[0f32; 64])
        .with("group 32 1 1")
        .go()
        .get::<f32>(2);
    for row in 0..8 {
        for column in 0..8 {
            let sum: f32 = (0..8)
                .map(|k| a[row * 8 + k].to_f32() * b[column * 8 + k].to_f32())
                .sum();
            assert_eq!(out[row * 8 + column], 1.0 + sum);
        }
    }
}

/// `a * b + c` of three types, one rounding or two.
fn contracted(contraction: Contraction) -> (f32, f16, bf16, f32) {
    let source = "[[kernel]] void k(device const float* f, device const half* h, device const bfloat* b, device float* of, device half* oh, device bfloat* ob) {
        of[0] = f[0] * f[1] + f[2];
        oh[0] = h[0] * h[1] + h[2];
        ob[0] = b[0] * b[1] + b[2];
        float p = f[0] * f[1];
        of[1] = p + f[2];
    }";
    let e = 1.0 / 2048.0;
    let out = kernel(source)
        .contraction(contraction)
        .buffer(
            0,
            &[1.0 + e, 1.0 - e, -1.0f32].map(|x| if x < 0.0 { x } else { 1.0 + (x - 1.0) / 4.0 }),
        )
        .buffer(1, &[1.0 + 2.0 * e, 1.0 - 2.0 * e, -1.0].map(f16::from_f32))
        .buffer(
            2,
            &[1.0 + 16.0 * e, 1.0 - 16.0 * e, -1.0].map(bf16::from_f32),
        )
        .buffer(3, &[0f32; 2])
        .buffer(4, &[f16::ZERO])
        .buffer(5, &[bf16::ZERO])
        .go();
    let f = out.get::<f32>(3);
    (f[0], out.get::<f16>(4)[0], out.get::<bf16>(5)[0], f[1])
}

#[test]
fn a_product_and_a_sum_round_once_or_twice() {
    let e: f32 = 1.0 / 8192.0;
    let (f, h, b, apart) = contracted(Contraction::Fused);
    assert_eq!(f, -(e * e));
    assert_eq!(h.to_f32(), -1.0 / 1_048_576.0);
    assert_eq!(b.to_f32(), -1.0 / 16_384.0);
    // Two statements are never fused.
    assert_eq!(apart, 0.0);
    let (f, h, b, apart) = contracted(Contraction::Split);
    assert_eq!((f, h.to_f32(), b.to_f32(), apart), (0.0, 0.0, 0.0, 0.0));
}

#[test]
fn sixteen_bit_types_convert_and_round_as_ieee() {
    let source = "[[kernel]] void k(device const float* x, device half* h, device bfloat* b, device bfloat* hb, device float* l, uint i [[thread_position_in_grid]]) {
        h[i] = half(x[i]); b[i] = bfloat(x[i]); hb[i] = static_cast<bfloat>(h[i]);
        if (i == 0) { l[0] = x[1] * 0.1; l[1] = 1.0h + 0.5; l[2] = half(3.1h) == half(3.1); }
    }";
    let x = [
        0.0,
        1.0 / 3.0,
        -65_504.0,
        65_519.9,
        65_520.0,
        6e-8,
        2.9e-8,
        1.000_976_6,
        f32::INFINITY,
        3.4e38,
        1e-40,
        -0.0,
        1.003_906_2,
        1.011_718_8,
    ];
    let out: Outcome = kernel(source)
        .buffer(0, &x)
        .buffer(1, &[f16::ZERO; 14])
        .buffer(2, &[bf16::ZERO; 14])
        .buffer(3, &[bf16::ZERO; 14])
        .buffer(4, &[0f32; 3])
        .with("group 14 1 1")
        .go();
    for (i, &x) in x.iter().enumerate() {
        assert_eq!(
            out.get::<f16>(1)[i].to_bits(),
            f16::from_f32(x).to_bits(),
            "{x}"
        );
        assert_eq!(
            out.get::<bf16>(2)[i].to_bits(),
            bf16::from_f32(x).to_bits(),
            "{x}"
        );
        assert_eq!(
            out.get::<bf16>(3)[i].to_bits(),
            bf16::from_f32(f16::from_f32(x).to_f32()).to_bits(),
            "{x}"
        );
    }
    assert_eq!(out.get::<f32>(4), [x[1] * 0.1f32, 1.5, 1.0]);
}

#[test]
fn vectors_are_made_converted_and_indexed() {
    let source = "[[kernel]] void k(device const half4* h, device float* y, device const uchar4* c) {
        float4 v = float4(h[0]) + float4(1, 2, 3, 4); float2 w(v.x, 0.5); vec<int, 2> i = vec<int, 2>(v.yz); uint3 s = uint3(7);
        float4 u = float4(w, i[0], dot(v, v)); using V = vec<float, 2>;
        for (int n = 0; n < 4; n++) { y[n] = v[n]; y[4 + n] = u[n]; }
        y[8] = s.z + i.y + V(3.5, 1).x; y[9] = float4(c[0]).w; y[10] = max(float2(1, 9), float2(4, 5)).x; y[11] = half4(v).y;
    }";
    let h = [0.5, 1.5, 2.5, 3.5].map(f16::from_f32);
    let out = kernel(source)
        .buffer(0, &h)
        .buffer(1, &[0f32; 12])
        .buffer(2, &[1u8, 2, 3, 250])
        .go();
    let dot = 1.5 * 1.5 + 3.5 * 3.5 + 5.5 * 5.5 + 7.5 * 7.5;
    assert_eq!(
        out.get::<f32>(1),
        [
            1.5, 3.5, 5.5, 7.5, 1.5, 0.5, 3.0, dot, 15.5, 250.0, 4.0, 3.5
        ]
    );
}

#[test]
fn overloads_by_address_space_become_one() {
    let source = "template <typename T> struct box {
            T v;
            constexpr box(T x) thread : v(x) {}
            constexpr box(T x) threadgroup : v(x) {}
            constexpr T get() const thread { return v; }
            constexpr T get() const device { return v; }
            constexpr T get() const constant { return v; }
        };
        template <typename T> struct name { static constexpr constant int n = 0; };
        template <typename T> struct name<device T*> { static constexpr constant int n = 1; };
        template <typename T> struct name<thread T*> { static constexpr constant int n = 1; };
        template <typename T> inline thread box<T>& operator+=(thread box<T>& a, T b) { a.v += b; return a; }
        template <typename T> inline device box<T>& operator+=(device box<T>& a, T b) { a.v += b; return a; }
        [[kernel]] void k(device box<int>* x, constant box<int>& c) {
            box<int> t(5); t += 2; x[0] += 3; x[1] = box<int>(t.get() + x[0].get() + c.get() + name<device int*>::n);
        }";
    let out = kernel(source).buffer(0, &[1i32, 0]).bytes(1, 100i32).go();
    assert_eq!(out.get::<i32>(0), [4, 112]);
}

#[test]
fn instantiations_by_name_list_and_parameters() {
    let source = format!(
        "{HEAD}template <typename T, int n, int m = 2> [[kernel, max_total_threads_per_threadgroup(n * 32)]] void k(device T* x [[buffer(0)]]) {{ x[0] = T(n * m); }}
        template <typename T> [[kernel]] void deduced(device T* x [[buffer(0)]], constant int& y [[buffer(1)]]) {{ x[0] = T(sizeof(T)) + y; }}
        template [[host_name(\"a\" \"b\")]] [[kernel]] decltype(k<float, 3>) k<float, 3>;
        template [[host_name(\"c\")]] [[kernel]] void deduced(device float* x [[buffer(0)]], constant int& y [[buffer(1)]]);"
    );
    assert_eq!(
        Run::text(&source, "ab")
            .buffer(0, &[0f32])
            .go()
            .get::<f32>(0),
        [6.0]
    );
    assert!(
        Run::text(&source, "ab")
            .describe()
            .contains("max_threads 96 ")
    );
    assert_eq!(
        Run::text(&source, "c")
            .buffer(0, &[0f32])
            .bytes(1, 10i32)
            .go()
            .get::<f32>(0),
        [14.0]
    );
}

#[test]
fn divergent_collectives_are_faults_that_name_both_places() {
    let simd = kernel(
        "[[kernel]] void k(device uint* y, uint i [[thread_position_in_grid]]) {
            if (i < 16) y[i] = simd_sum(i);
            else y[i] = simd_max(i);
        }",
    )
    .buffer(0, &[0u32; 32])
    .with("group 32 1 1")
    .go();
    assert_eq!(simd.fault().code, "DIVERGENT");
    let message = &simd.fault().message;
    assert!(
        message.contains("simd_sum") && message.contains("simd_max"),
        "{message}"
    );
    for how in ["workers 1", "reverse"] {
        let barrier = kernel(
            "[[kernel]] void k(device uint* y, uint i [[thread_position_in_grid]]) {
                if (i < 40) threadgroup_barrier(mem_flags::mem_threadgroup);
                y[i] = simd_sum(i);
            }",
        )
        .buffer(0, &[0u32; 64])
        .with("group 64 1 1")
        .with(how)
        .go();
        assert_eq!(barrier.fault().code, "DIVERGENT", "{how}");
        assert!(
            barrier.fault().message.contains("threadgroup_barrier"),
            "{}",
            barrier.fault().message
        );
    }
}

/// Like MLX's `gemv_t`: lanes beyond the last column do not reach the barriers of a loop, and some
/// then wait at the next one.
#[test]
fn lanes_may_stay_away_from_a_barrier_that_orders_nothing() {
    for how in ["workers 1", "reverse"] {
        for columns in [1, 40, 64, 70] {
            let out = kernel(
                "[[kernel]] void k(device uint* y, constant uint& n, uint i [[thread_position_in_grid]]) {
                    uint sum = 0;
                    if (i < n) for (uint j = 0; j < 3; j++) {
                        threadgroup_barrier(mem_flags::mem_none);
                        sum += i;
                    }
                    sum = simd_sum(sum);
                    threadgroup_barrier(mem_flags::mem_none);
                    y[i] = sum;
                }",
            )
            .buffer(0, &[0u32; 96])
            .bytes(1, columns)
            .with("group 96 1 1")
            .with(how)
            .go();
            let sum = |simdgroup: u32| {
                let lanes = simdgroup * 32..(simdgroup + 1) * 32;
                3 * lanes.filter(|&lane| lane < columns).sum::<u32>()
            };
            let expected: Vec<u32> = (0..96).map(|i| sum(i / 32)).collect();
            assert_eq!(out.get::<u32>(0), expected, "{how}, {columns}");
        }
    }
}

#[test]
fn a_simdgroup_barrier_orders_threadgroup_memory() {
    let source = "[[kernel]] void k(device uint* y, uint i [[thread_position_in_threadgroup]]) {
        threadgroup uint a[64];
        a[i] = i;
        simdgroup_barrier(mem_flags::mem_threadgroup);
        y[i] = a[i ^ 31];
    }";
    let out = kernel(source)
        .buffer(0, &[0u32; 64])
        .with("group 64 1 1")
        .go();
    assert_eq!(
        out.get::<u32>(0),
        (0..64).map(|i| i ^ 31).collect::<Vec<u32>>()
    );
}

#[test]
fn unbound_arguments_fault_when_they_are_used() {
    let source = "[[kernel]] void k(device int* y, device const int* x, constant int& n) { y[0] = 1; if (y[1]) y[0] = x[5]; if (y[2]) y[0] = n; }";
    let run = |y: [i32; 3]| kernel(source).buffer(0, &y).go();
    assert_eq!(run([0, 0, 0]).get::<i32>(0)[0], 1);
    for (y, slot, name) in [([0, 1, 0], 1, "argument x"), ([0, 0, 1], 2, "argument n")] {
        let out = run(y);
        assert_eq!(
            (out.fault().code, out.fault().slot),
            ("MISSING_ARGUMENT", slot)
        );
        assert!(
            out.fault().message.contains(name),
            "{}",
            out.fault().message
        );
    }
    let short = kernel(source)
        .buffer(0, &[0i32; 3])
        .buffer(1, &[0i32])
        .buffer(2, &[1u8])
        .go();
    assert_eq!(
        (short.fault().code, short.fault().slot),
        ("SHORT_ARGUMENT", 2)
    );
}

#[test]
fn the_meter_counts_bytes_and_marks_what_is_written() {
    let source = "struct S { float v[8]; };
        [[kernel]] void k(device const float* x, device float* y, device S* s, constant int& n, uint i [[thread_position_in_grid]]) {
            threadgroup float t[32];
            t[i] = x[i];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (i % 2 == 0) y[i] = t[31 - i] + x[(i + n) % 32];
            if (i == 3) s[1] = s[0];
        }";
    let run = || {
        kernel(source)
            .metered()
            .buffer(0, &floats(32))
            .buffer(1, &[0f32; 32])
            .buffer(2, &[1f32; 16])
            .bytes(3, 4i32)
            .with("group 32 1 1")
    };
    let out = run().go();
    assert_eq!(out.loaded[&0], 32 * 4 + 16 * 4);
    assert_eq!(out.stored[&1], 16 * 4);
    assert_eq!((out.loaded[&2], out.stored[&2]), (32, 32));
    let written: Vec<u8> = (0..128).map(|byte| u8::from(byte / 4 % 2 == 0)).collect();
    assert_eq!(out.written[&1], written);
    assert_eq!(out.written[&2], [[0; 32], [1; 32]].concat());
    assert!(!out.stored.contains_key(&0));
}

#[test]
fn the_meter_checks_every_access() {
    let fault = |body: &str| {
        let source = format!(
            "[[kernel]] void k(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {{ {body} }}"
        );
        let out = kernel(&source)
            .metered()
            .buffer(0, &floats(32))
            .buffer(1, &[0f32; 32])
            .with("group 32 1 1")
            .go();
        let fault = out.fault();
        (fault.code, fault.slot, fault.message.clone())
    };
    let (code, slot, message) = fault("y[i] = x[i + 1];");
    assert_eq!((code, slot), ("OUT_OF_RANGE", 0));
    assert!(
        message.contains("byte 128 of argument x (buffer index 0), which has 128 bytes"),
        "{message}"
    );
    assert_eq!(fault("y[i + 4] = 0;").0, "OUT_OF_RANGE");
    assert_eq!(
        fault("threadgroup float t[32]; t[i + 1] = x[i]; y[i] = t[i];").0,
        "OUT_OF_RANGE"
    );
    let (code, slot, _) = fault("const_cast<float*>(x)[i] = 1; y[i] = 0;");
    assert_eq!((code, slot), ("CONST_WRITE", 0));
}

#[test]
fn a_lane_that_runs_over_its_stack_is_a_fault() {
    let source = "template <int n> [[gnu::noinline]] int deep(device int* y) {
            int a[1000]; for (int i = 0; i < 1000; i++) a[i] = y[i % 2] + n;
            if constexpr (n == 0) return a[7]; else return deep<n - 1>(y) + a[y[1] % 1000];
        }
        [[kernel]] void k(device int* y) { y[0] = deep<80>(y); }";
    let out = kernel(source).buffer(0, &[0i32, 1000]).go();
    assert_eq!(out.fault().code, "STACK", "{:?}", out.fault);
}

#[test]
fn lanes_start_with_an_aligned_stack() {
    // A store that needs the alignment faults without it; a check of the address would be folded by the compiler.
    let source = "[[kernel]] void k(device float* y, uint i [[thread_position_in_grid]]) {
        volatile float4 v = float4(i);
        y[i] = v.w + simd_sum(v.x) * 0;
    }";
    let out = kernel(source)
        .buffer(0, &[9f32; 64])
        .with("group 64 1 1")
        .go();
    assert_eq!(
        out.get::<f32>(0),
        (0..64).map(|i| i as f32).collect::<Vec<_>>()
    );
}
