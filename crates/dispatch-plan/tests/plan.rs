//! Compares the plan with the known behaviour of MLX 0.32.4 and with the policies' promises.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use dispatch_plan::{
    Architecture, Dtype, Error, Format, Mode, Op, Path, Plan, Policy, Problem, Route, RoutePath,
    plan,
};

const HEAD: (u32, u32) = (248_320, 2_560);
const MLP: (u32, u32) = (17_408, 5_120);
const ARCHITECTURES: [&str; 8] = [
    "applegpu_g13g",
    "applegpu_g13s",
    "applegpu_g13d",
    "applegpu_g14s",
    "applegpu_g15s",
    "applegpu_g15d",
    "applegpu_g16s",
    "applegpu_g17s",
];

fn on(architecture: &str, (n, k): (u32, u32)) -> Problem {
    Problem::new(architecture.parse().unwrap(), n, k)
}

fn rows(problem: Problem, m: u32, policy: Policy) -> Plan {
    plan(&Problem { m, ..problem }, policy, &[]).unwrap()
}

/// The first number of rows that takes a matrix kernel.
fn limit(problem: Problem, policy: Policy) -> Option<u32> {
    (1..=64).find(|&m| rows(problem, m, policy).path == Path::Matrix)
}

#[test]
fn batch_limits_are_those_of_the_architecture() {
    let shapes = [(2_048, 2_048), (4_096, 4_096), MLP];
    for (name, expected) in [
        ("applegpu_g13g", [14, 10, 6]),
        ("applegpu_g13s", [14, 10, 7]),
        ("applegpu_g13d", [32, 18, 12]),
        ("applegpu_g14s", [14, 10, 6]),
        ("applegpu_g15s", [13, 15, 13]),
        ("applegpu_g15d", [32, 18, 12]),
        ("applegpu_g17s", [33, 25, 13]),
        ("applegpu_g17d", [32, 18, 12]),
    ] {
        let found = shapes.map(|shape| limit(on(name, shape), Policy::DEFAULT));
        assert_eq!(found, expected.map(Some), "{name}");
    }
}

#[test]
fn default_is_wide_from_generation_15_on() {
    let ladder = |name| (1..=11).map(move |m| rows(on(name, MLP), m, Policy::DEFAULT));
    for (m, plan) in (1_u32..).zip(ladder("applegpu_g15d")) {
        let expected = if m == 1 { Path::Qmv } else { Path::Wide };
        assert_eq!((plan.path, plan.identical), (expected, m == 1), "M = {m}");
        assert_eq!(plan.weight_passes, m.div_ceil(8), "M = {m}");
    }
    for plan in ladder("applegpu_g13d") {
        assert_eq!((plan.path, plan.identical), (Path::Qmv, true));
        assert_eq!(plan.weight_passes, plan.tiles);
    }
}

#[test]
fn names_are_spelled_as_the_library_spells_them() {
    let problem = on("applegpu_g15d", MLP);
    let name = |problem, m, policy| rows(problem, m, policy).kernel;
    assert_eq!(
        name(problem, 1, Policy::DEFAULT),
        "affine_qmv_fast_bfloat16_t_gs_64_b_4_batch_0_pr_0_hgs_0_r_4"
    );
    assert_eq!(
        name(problem, 8, Policy::DEFAULT),
        "affine_qmv_wide_bfloat16_t_gs_64_b_4_nv_8_kl_8_batch_0"
    );
    assert_eq!(
        name(problem, 8, Policy::EXACT),
        "affine_qmv_streamed_fast_bfloat16_t_gs_64_b_4_nv_8_r_4_s_8_batch_0"
    );
    assert_eq!(
        name(
            Problem {
                k: 5_120 + 64,
                ..problem
            },
            3,
            Policy::EXACT
        ),
        "affine_qmv_streamed_bfloat16_t_gs_64_b_4_nv_3_r_4_s_4_batch_0"
    );
    assert_eq!(
        name(
            Problem {
                n: 17_407,
                dtype: Dtype::Float32,
                ..problem
            },
            8,
            Policy::NARROW
        ),
        "affine_qmv_fast_float_gs_64_b_4_batch_0_pr_1_hgs_0_r_4"
    );
    assert_eq!(
        name(
            Problem {
                k: 128,
                batch: 2,
                ..problem
            },
            3,
            Policy::EXACT
        ),
        "affine_qmv_quad_bfloat16_t_gs_64_b_4_d_128_batch_1"
    );
}

/// Every GPU that MLX distinguishes.
fn devices() -> impl Iterator<Item = Architecture> {
    Architecture::all().filter(|architecture| architecture.generation() <= 17)
}

/// The purpose of the project: the bits of one row for the cost of one pass over eight, on every GPU.
#[test]
fn exact_reads_the_weights_once_for_eight_rows() {
    for architecture in devices() {
        for (n, k) in [HEAD, MLP] {
            let problem = Problem::new(architecture, n, k);
            let one = rows(problem, 1, Policy::EXACT);
            for m in 2..=Policy::BLOCK_ROWS {
                let plan = rows(problem, m, Policy::EXACT);
                assert_eq!(
                    (plan.path, plan.identical),
                    (Path::Streamed, true),
                    "{architecture} {m}"
                );
                assert_eq!(plan.weight_passes, m.div_ceil(8), "{architecture} {m}");
                assert_eq!(
                    plan.weight_bytes,
                    one.weight_bytes * u64::from(plan.weight_passes)
                );
                assert!(plan.tile * plan.tiles >= m && [2, 3, 4, 6, 8].contains(&plan.tile));
            }
        }
    }
}

#[test]
fn no_policy_but_wide_changes_one_row() {
    for architecture in devices() {
        for &op in Op::ALL {
            for transpose in [true, false] {
                let problem = Problem {
                    op,
                    transpose,
                    ..Problem::new(architecture, MLP.0, MLP.1)
                };
                let expected = rows(problem, 1, Policy::DEFAULT);
                for policy in [Policy::EXACT, Policy::NARROW, Policy::EXACT.all()] {
                    assert_eq!(
                        rows(problem, 1, policy),
                        expected,
                        "{architecture} {op} {policy}"
                    );
                }
            }
        }
    }
}

/// Products of every operation, form and mode; those of a gather are sorted, and so many that MLX would batch them.
fn products(architecture: Architecture) -> Vec<Problem> {
    let mut products = Vec::new();
    for &mode in Mode::ALL {
        for &op in Op::ALL {
            if op.quantizes_x() && mode == Mode::Affine {
                continue;
            }
            for (transpose, global_scale, nax) in
                (0..8).map(|i| (i & 1 == 0, i & 2 != 0, i & 4 != 0))
            {
                if (!transpose && op.quantizes_x())
                    || (global_scale && (mode != Mode::Nvfp4 || op == Op::QuantizedMatmul))
                    || (nax && !architecture.has_matrix_units())
                {
                    continue;
                }
                for (n, k) in [MLP, (2_048, 2_048), (4_096, 128)] {
                    products.push(Problem {
                        op,
                        transpose,
                        global_scale,
                        nax,
                        batch: if op.gathers() { 16 } else { 1 },
                        experts: 4,
                        right_sorted: op.gathers(),
                        ..Problem::new(architecture, n, k).with_mode(mode)
                    });
                }
            }
        }
    }
    products
}

/// Paths whose kernels compute a row as if it were alone.
fn goes_row_by_row(path: Path) -> bool {
    matches!(path, Path::Quad | Path::Qmv | Path::Rows)
}

/// The promise, on every GPU and on both sides of its batch limit: rows of a block keep their bits and take no matrix
/// kernel; more rows are computed as without a policy.
#[test]
fn blocks_keep_their_bits_on_every_gpu_and_prompts_are_as_without_a_policy() {
    let mut beyond = 0;
    for architecture in devices() {
        for problem in products(architecture) {
            let limit = limit(problem, Policy::DEFAULT).unwrap_or(20);
            let most = limit.max(Policy::BLOCK_ROWS) + 2;
            for kind in [Policy::EXACT, Policy::NARROW, Policy::WIDE] {
                for policy in [kind, kind.with_rows(40).unwrap(), kind.all()] {
                    for m in 1..=most {
                        let plan = rows(problem, m, policy);
                        let what = format!("{policy} {m} {problem:?}: {plan:?}");
                        // Rows of a gather are its picks; one row of a policy counts for several picks.
                        let (count, worth) = if problem.op.gathers() {
                            (m * problem.batch, Policy::PICKS_PER_ROW)
                        } else {
                            (m, 1)
                        };
                        if policy.rows().is_some_and(|most| count > most * worth) {
                            let mut expected = rows(problem, m, Policy::DEFAULT);
                            // Under `wide`, the row alone has other bits.
                            let qmv = matches!(plan.path, Path::Qmv | Path::Wide);
                            if kind == Policy::WIDE && qmv && !problem.global_scale {
                                expected.identical = plan.path == Path::Wide;
                            }
                            assert_eq!(plan, expected, "{what}");
                            continue;
                        }
                        assert!(plan.identical, "{what}");
                        let streams = plan.path == Path::Streamed && kind == Policy::EXACT;
                        let wide = plan.path == Path::Wide && kind == Policy::WIDE;
                        assert!(
                            goes_row_by_row(plan.path) || streams && kind == Policy::EXACT || wide,
                            "{what}"
                        );
                        beyond += u32::from(m >= limit);
                    }
                }
            }
        }
    }
    assert!(beyond > 1_000, "{beyond} products beyond a batch limit");
}

/// `wide` computes one row with the kernel for several, in tiles that MLX has itself. What qmv_wide cannot compute is
/// computed as under `narrow`.
#[test]
fn wide_takes_one_kernel_for_any_number_of_rows() {
    let mut as_narrow = 0;
    for architecture in devices() {
        for problem in products(architecture) {
            for m in 1..=Policy::BLOCK_ROWS {
                let plan = rows(problem, m, Policy::WIDE);
                if plan.path != Path::Wide {
                    assert_eq!(plan, rows(problem, m, Policy::NARROW));
                    as_narrow += 1;
                    continue;
                }
                assert_eq!(plan.weight_passes, m.div_ceil(5), "{architecture} {m}");
                assert!((2..=5).contains(&plan.tile), "{architecture} {m}");
            }
        }
    }
    assert!(as_narrow > 0);
    let problem = on("applegpu_g13s", MLP);
    let name = |m| rows(problem, m, Policy::WIDE).kernel;
    for m in [1, 2] {
        let expected = "affine_qmv_wide_bfloat16_t_gs_64_b_4_nv_2_kl_8_batch_0";
        assert_eq!(name(m), expected);
    }
    assert_eq!(
        name(16),
        "affine_qmv_wide_bfloat16_t_gs_64_b_4_nv_4_kl_8_batch_0"
    );
    let scaled = Problem {
        op: Op::QqMatmul,
        global_scale: true,
        ..problem.with_mode(Mode::Nvfp4)
    };
    assert_eq!(rows(scaled, 4, Policy::WIDE).path, Path::Qmv);
}

#[test]
fn narrow_goes_row_by_row() {
    let plan = rows(on("applegpu_g15d", MLP), 4, Policy::NARROW);
    assert_eq!((plan.path, plan.weight_passes), (Path::Qmv, 4));
}

/// The limit counts rows of x, and all picks of a gather.
#[test]
fn a_block_has_as_many_rows_as_the_policy_says() {
    let problem = on("applegpu_g13g", MLP);
    for (policy, most) in [
        (Policy::EXACT, 16),
        (Policy::EXACT.with_rows(3).unwrap(), 3),
        (Policy::NARROW.with_rows(40).unwrap(), 40),
    ] {
        assert!(rows(problem, most, policy).identical, "{policy}");
        assert_eq!(
            rows(problem, most + 1, policy),
            rows(problem, most + 1, Policy::DEFAULT),
            "{policy}"
        );
    }
    let one = Policy::EXACT.with_rows(1).unwrap();
    let gather = |batch| Problem {
        op: Op::GatherQmm,
        batch,
        experts: 4,
        right_sorted: true,
        ..problem
    };
    assert_eq!(rows(gather(32), 1, one).path, Path::Rows);
    assert_eq!(rows(gather(33), 1, one).path, Path::Sorted);
}

const FLOAT_MODES: [Mode; 3] = [Mode::Mxfp4, Mode::Mxfp8, Mode::Nvfp4];

/// The wide kernel, in tiles of five, on every generation; its replacement in tiles of eight.
#[test]
fn float_modes_are_streamed_on_every_generation() {
    for name in ARCHITECTURES {
        for mode in FLOAT_MODES {
            let problem = on(name, MLP).with_mode(mode);
            for m in 2..limit(problem, Policy::DEFAULT).unwrap() {
                let wide = rows(problem, m, Policy::DEFAULT);
                assert_eq!(
                    (wide.path, wide.weight_passes, wide.identical),
                    (Path::Wide, m.div_ceil(5), false),
                    "{name} {mode} {m}"
                );
                let plan = rows(problem, m, Policy::EXACT.all());
                assert_eq!(
                    (plan.path, plan.weight_passes, plan.identical),
                    (Path::Streamed, m.div_ceil(8), true),
                    "{name} {mode} {m}"
                );
            }
        }
    }
}

#[test]
fn names_of_float_modes_are_spelled_as_the_library_spells_them() {
    let name = |problem, m| rows(problem, m, Policy::EXACT).kernel;
    let problem = on("applegpu_g17s", MLP).with_mode(Mode::Nvfp4);
    assert_eq!(
        name(problem, 1),
        "nvfp4_qmv_fast_bfloat16_t_gs_16_b_4_batch_0_pr_0_hgs_0_r_2"
    );
    assert_eq!(
        name(problem, 8),
        "nvfp4_qmv_streamed_fast_bfloat16_t_gs_16_b_4_nv_8_r_4_s_4_batch_0"
    );
    let scaled = Problem {
        op: Op::QqMatmul,
        global_scale: true,
        k: 5_120 + 16,
        ..problem
    };
    assert_eq!(
        name(scaled, 3),
        "nvfp4_qmv_streamed_bfloat16_t_gs_16_b_4_nv_3_r_4_s_4_batch_0_hgs"
    );
    let batched = Problem {
        batch: 2,
        dtype: Dtype::Float16,
        ..problem.with_mode(Mode::Mxfp8)
    };
    assert_eq!(
        name(batched, 5),
        "mxfp8_qmv_streamed_fast_float16_t_gs_32_b_8_nv_6_r_4_s_0_batch_1"
    );
}

/// The arrangement is in the name: r outputs per simdgroup, s simdgroups that share x.
fn arrangement(plan: &Plan) -> &str {
    let from = plan.kernel.find("_r_").unwrap();
    let to = plan.kernel.find("_batch_").unwrap();
    &plan.kernel[from..to]
}

#[test]
fn few_outputs_take_small_threadgroups_and_a_route_the_other_arrangement() {
    let alternative = Route {
        path: RoutePath::StreamedAlt,
        ..ANYWHERE
    };
    for format in Format::all() {
        for m in 2..=9 {
            let of = |n: u32, batch, route: &[Route]| {
                let problem = Problem {
                    m,
                    batch,
                    ..on("applegpu_g15d", (n, 4_096)).with_format(format)
                };
                let plan = plan(&problem, Policy::EXACT, route).unwrap();
                let simdgroups = plan.group[1];
                let outputs: u32 = arrangement(&plan)[3..4].parse().unwrap();
                assert_eq!(plan.grid[1], n.div_ceil(outputs * simdgroups), "{plan:?}");
                assert!(plan.identical, "{plan:?}");
                (plan.path, arrangement(&plan).to_owned())
            };
            let [few, many] = [2_048, 2_049].map(|n| of(n, 1, &[]));
            let [other_few, other_many] =
                [2_048, 2_049].map(|n| of(n, 1, std::slice::from_ref(&alternative)));
            let what = format!("{format:?} {m}: {few:?} {many:?} {other_few:?} {other_many:?}");
            assert_eq!((few.0, many.0), (Path::Streamed, Path::Streamed), "{what}");
            assert_eq!(
                of(2_048, 2, std::slice::from_ref(&alternative)),
                many,
                "{what}"
            );
            if format.bits() == 8 {
                assert_eq!(few, many, "{what}");
                assert_eq!((&other_few, &other_many), (&few, &many), "{what}");
            } else {
                assert_eq!(few.1, "_r_2_s_0", "{what}");
                assert_eq!(other_many, (Path::StreamedAlt, few.1), "{what}");
                assert_eq!(other_few, (Path::StreamedAlt, many.1), "{what}");
            }
        }
    }
}

/// Prepared x of a tile and the sums of its chunks, for the longest chunk. Apple's GPUs allow 32 KB per threadgroup; we
/// use at most 24.
#[test]
fn shared_x_fits_into_24_kilobytes() {
    let mut most = 0;
    for format in Format::all() {
        for m in 2..=8 {
            let plan = rows(
                on("applegpu_g15d", MLP).with_format(format),
                m,
                Policy::EXACT,
            );
            if plan.group[1] == 2 {
                continue;
            }
            let pack = match format.bits() {
                3 | 5 => 8,
                6 => 4,
                bits => 32 / bits,
            };
            let chunk = if format.bits() > 2 { 2 * pack } else { pack };
            let bytes = plan.tile * 32 * (chunk + 1) * 4;
            assert!(bytes <= 24 * 1024, "{format:?} {m}: {bytes}");
            most = most.max(bytes);
        }
    }
    assert!(most > 16 * 1024, "{most}");
}

/// Rows that the streamed kernels compute for each row that they store.
#[test]
fn nearly_no_row_is_computed_for_nothing() {
    for format in Format::all() {
        for n in [1_024, 8_192] {
            let mut ratios = Vec::new();
            for m in 2..=32_u32 {
                let problem = on("applegpu_g15d", (n, 4_096)).with_format(format);
                let plan = rows(problem, m, Policy::EXACT.all());
                let a_tile = m.div_ceil(plan.tiles);
                for tile in 0..plan.tiles {
                    let count = a_tile.min(m - tile * a_tile);
                    assert!((1..=plan.tile).contains(&count), "{m}");
                }
                let computed = plan.computed_rows(m, format.bits());
                ratios.push(f64::from(computed) / f64::from(m));
            }
            let most = ratios.iter().copied().fold(0.0, f64::max);
            let mean = ratios.iter().sum::<f64>() / 31.0;
            println!("{format:?}, N = {n}: {mean:.3} in the mean, {most:.2} at most");
            let [mean_bound, most_bound] = match format.bits() {
                1 => [1.08, 1.24],
                3 if n == 1_024 => [1.15, 1.34],
                _ => [1.03, 1.13],
            };
            assert!(
                mean <= mean_bound && most <= most_bound,
                "{format:?} {n}: {ratios:.2?}"
            );
        }
    }
}

/// A matrix kernel for products that quantize x exists only with global scales and bfloat16.
#[test]
fn quantizing_products_are_streamed_whether_a_matrix_kernel_takes_them_or_not() {
    let problem = Problem {
        op: Op::QqMatmul,
        ..on("applegpu_g15d", MLP).with_mode(Mode::Nvfp4)
    };
    let scaled = Problem {
        global_scale: true,
        ..problem
    };
    assert_eq!(limit(problem, Policy::DEFAULT), None);
    assert_eq!(limit(scaled, Policy::DEFAULT), Some(12));
    assert_eq!(limit(scaled, Policy::EXACT), Some(17));
    assert_eq!(limit(scaled, Policy::EXACT.all()), None);
    let float32 = Problem {
        dtype: Dtype::Float32,
        ..scaled
    };
    assert_eq!(limit(float32, Policy::DEFAULT), None);
    // qmv_wide has no global scale.
    assert_eq!(rows(problem, 6, Policy::DEFAULT).path, Path::Wide);
    assert_eq!(rows(scaled, 6, Policy::DEFAULT).path, Path::Qmv);
    for problem in [problem, scaled] {
        let plan = rows(problem, 11, Policy::EXACT);
        assert_eq!((plan.path, plan.weight_passes), (Path::Streamed, 2));
    }
}

/// Below the batch limit, gathers go row by row under every policy. A policy also keeps them row by row above the
/// limit, and in sorted batches of single rows.
#[test]
fn gathers_ask_the_policy_at_the_limit_and_in_sorted_batches_only() {
    for mode in Mode::ALL {
        let problem = Problem {
            op: Op::GatherQmm,
            batch: 64,
            experts: 4,
            ..on("applegpu_g15d", MLP).with_mode(*mode)
        };
        let sorted = Problem {
            right_sorted: true,
            ..problem
        };
        for policy in Policy::KINDS.iter().map(|policy| policy.all()) {
            let below = rows(problem, 3, policy);
            assert_eq!(
                (below.path, below.identical),
                (Path::Rows, true),
                "{mode} {policy}"
            );
            let [above, batch] = match policy {
                Policy::DEFAULT => [Path::Matrix, Path::Sorted],
                _ => [Path::Rows; 2],
            };
            assert_eq!(rows(problem, 40, policy).path, above, "{mode} {policy}");
            assert_eq!(rows(sorted, 1, policy).path, batch, "{mode} {policy}");
        }
        // Without a global scale in bfloat16 there is no matrix kernel to exclude.
        let quantizing = Problem {
            op: Op::GatherQqmm,
            ..sorted
        };
        for &policy in Policy::KINDS {
            for m in [1, 3, 40] {
                let path = rows(quantizing, m, policy).path;
                assert_eq!(path, Path::Rows, "{mode} {policy} {m}");
            }
        }
    }
}

#[test]
fn routes_are_followed_where_the_policy_permits() {
    let all = 0..=i32::MAX;
    let to = |path| Route {
        mode: None,
        bits: None,
        group_size: None,
        n: all.clone(),
        k: all.clone(),
        m: 2..=3,
        path,
    };
    let problem = Problem {
        m: 3,
        ..on("applegpu_g15d", MLP)
    };
    let path = |policy, route| plan(&problem, policy, &[route]).unwrap().path;
    assert_eq!(
        path(Policy::DEFAULT, to(RoutePath::Streamed)),
        Path::Streamed
    );
    assert_eq!(path(Policy::EXACT, to(RoutePath::Qmv)), Path::Qmv);
    assert_eq!(
        path(Policy::EXACT, to(RoutePath::Wide)),
        Path::Streamed,
        "wide is not exact"
    );
    assert_eq!(
        path(Policy::NARROW, to(RoutePath::Streamed)),
        Path::Qmv,
        "narrow uses no table"
    );
    assert_eq!(
        path(Policy::WIDE, to(RoutePath::Streamed)),
        Path::Wide,
        "nor does wide"
    );
    let later = Problem { m: 4, ..problem };
    let plan_later = plan(&later, Policy::EXACT, &[to(RoutePath::Qmv)]).unwrap();
    assert_eq!(
        plan_later.path,
        Path::Streamed,
        "outside of the route's rows"
    );
}

/// A route to `qmv` for every product, to be narrowed.
const ANYWHERE: Route = Route {
    mode: None,
    bits: None,
    group_size: None,
    n: 0..=i32::MAX,
    k: 0..=i32::MAX,
    m: 0..=i32::MAX,
    path: RoutePath::Qmv,
};

/// Modes and group sizes of the same width are separate products: measurements of one do not apply to another.
#[test]
fn routes_are_followed_by_products_of_their_format_alone() {
    let affine = Problem {
        m: 3,
        ..on("applegpu_g15d", MLP)
    };
    let wider = Problem {
        group_size: 128,
        ..affine
    };
    let [mxfp4, mxfp8, nvfp4] = FLOAT_MODES.map(|mode| affine.with_mode(mode));
    let all = [affine, wider, mxfp4, mxfp8, nvfp4];
    let follow = |route: &Route| {
        all.map(|problem| {
            let plan = plan(&problem, Policy::EXACT, std::slice::from_ref(route)).unwrap();
            plan.path == Path::Qmv
        })
    };
    let four = Route {
        bits: Some(4),
        ..ANYWHERE
    };
    let of_mode = |mode| Route {
        mode: Some(mode),
        ..ANYWHERE
    };
    let of_group = |group_size| Route {
        group_size: Some(group_size),
        ..ANYWHERE
    };
    for (route, expected) in [
        (ANYWHERE, [true, true, true, true, true]),
        (four, [true, true, true, false, true]),
        (of_mode(Mode::Affine), [true, true, false, false, false]),
        (of_mode(Mode::Mxfp4), [false, false, true, false, false]),
        (of_mode(Mode::Mxfp8), [false, false, false, true, false]),
        (of_mode(Mode::Nvfp4), [false, false, false, false, true]),
        (of_group(64), [true, false, false, false, false]),
        (of_group(128), [false, true, false, false, false]),
        (of_group(32), [false, false, true, true, false]),
        (of_group(16), [false, false, false, false, true]),
    ] {
        assert_eq!(follow(&route), expected, "{route:?}");
    }
    let measured = Route {
        mode: Some(Mode::Affine),
        bits: Some(4),
        group_size: Some(64),
        ..ANYWHERE
    };
    assert_eq!(follow(&measured), [true, false, false, false, false]);
}

#[test]
fn the_route_that_makes_no_sense_is_named() {
    let complaint = |route: Route| {
        let problem = on("applegpu_g15d", MLP);
        let error = plan(&problem, Policy::DEFAULT, &[ANYWHERE, route]).unwrap_err();
        error.to_string()
    };
    let seven = Route {
        bits: Some(7),
        ..ANYWHERE
    };
    assert_eq!(
        complaint(seven),
        "route 1: bits must be 1, 2, 3, 4, 5, 6 or 8, found 7"
    );
    #[allow(clippy::reversed_empty_ranges)] // the mistake in question
    let backwards = Route {
        n: 2..=1,
        ..ANYWHERE
    };
    assert_eq!(
        complaint(backwards),
        "route 1: a range ends before it starts"
    );
}

#[test]
fn bad_input_is_named() {
    let good = on("applegpu_g15d", MLP);
    let complaint = |problem: Problem| match plan(&problem, Policy::EXACT, &[]) {
        Err(Error::Invalid(message)) => message,
        other => panic!("{other:?}"),
    };
    let cases = [
        (
            Problem { bits: 7, ..good },
            "bits must be 1, 2, 3, 4, 5, 6 or 8 in mode affine, found 7",
        ),
        (
            Problem {
                group_size: 16,
                ..good
            },
            "group_size must be 32, 64 or 128 in mode affine, found 16",
        ),
        (
            Problem { k: 5_121, ..good },
            "k must be a positive multiple of the group size, 64, found 5121",
        ),
        (
            Problem { k: 0, ..good },
            "k must be a positive multiple of the group size, 64, found 0",
        ),
        (
            Problem {
                transpose: false,
                n: 100,
                ..good
            },
            "n must be a positive multiple of the group size, 64, found 100",
        ),
        (
            Problem { experts: 0, ..good },
            "experts must be 1 or more, found 0",
        ),
        (
            Problem {
                mode: Mode::Nvfp4,
                ..good
            },
            "group_size must be 16 in mode nvfp4, found 64",
        ),
        (
            Problem {
                global_scale: true,
                ..good.with_mode(Mode::Mxfp4)
            },
            "global_scale must be 0 in other modes than nvfp4, found 1",
        ),
        (
            Problem {
                m: u32::MAX,
                ..good
            },
            "m must be below 2^31, found 4294967295",
        ),
    ];
    for (problem, expected) in cases {
        assert_eq!(complaint(problem), expected);
    }
    for name in [
        "",
        "applegpu_",
        "applegpu_g15",
        "applegpu_gxd",
        "applegpu_g123d",
        "M3 Ultra",
    ] {
        assert!(name.parse::<Architecture>().is_err(), "{name:?}");
    }
    let message = "fast".parse::<Policy>().unwrap_err().to_string();
    assert!(
        message.starts_with("found \"fast\"; a policy is default, exact, narrow or wide, "),
        "{message}"
    );
    let empty = plan(&Problem { m: 0, ..good }, Policy::EXACT, &[]).unwrap();
    assert_eq!((empty.path, empty.weight_bytes), (Path::None, 0));
}
