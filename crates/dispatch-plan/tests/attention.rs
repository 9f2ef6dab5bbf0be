//! Plans of attention: every row depends on its own keys, and the plan shows what MLX chooses for a block.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use dispatch_plan::{Architecture, Attention, Dtype, Error, Policy, SizeClass, Way, attention};

fn block(architecture: &str, gqa: u32, keys: u32, rows: u32) -> Attention {
    Attention {
        architecture: architecture.parse().unwrap(),
        dtype: Dtype::Float16,
        heads: 2 * gqa,
        kv_heads: 2,
        head_dim: 128,
        value_dim: 128,
        keys,
        rows,
        causal: true,
        mask: false,
        sinks: false,
    }
}

/// First row, rows, keys, way and blocks of each group.
fn groups(problem: &Attention, policy: Policy) -> Vec<(u32, u32, u32, Way, u32)> {
    attention(problem, policy)
        .unwrap()
        .groups
        .iter()
        .map(|group| (group.first, group.rows, group.keys, group.way, group.blocks))
        .collect()
}

#[test]
fn a_block_across_a_threshold_is_two_groups() {
    // 1,022 to 1,025 keys; on an Ultra, two passes start at 1,024.
    let problem = block("g15d", 4, 1025, 4);
    assert_eq!(
        groups(&problem, Policy::EXACT),
        [
            (0, 2, 1023, Way::OnePass, 0),
            (2, 2, 1025, Way::TwoPass, 128)
        ]
    );
    // The kernel for large groups of heads starts at 8,192.
    let problem = block("g15d", 8, 8193, 4);
    let plan = attention(&problem, Policy::EXACT).unwrap();
    let kernels: Vec<&str> = plan
        .groups
        .iter()
        .map(|group| group.kernel.as_deref().unwrap())
        .collect();
    assert_eq!(
        kernels,
        [
            "sdpa_vector_2pass_1_float16_t_128_128",
            "sdpa_vector_2pass_1_gqa_rows_8_float16_t_128_128"
        ]
    );
    assert!(plan.identical);
    // `narrow` uses only MLX's own kernel, one row at a time.
    let plan = attention(&problem, Policy::NARROW).unwrap();
    assert_eq!(plan.groups.len(), 4);
    assert_eq!(
        plan.groups[3].kernel.as_deref(),
        Some("sdpa_vector_2pass_1_gqa_8_float16_t_128_128")
    );
}

#[test]
fn away_from_thresholds_a_block_is_one_group() {
    for architecture in Architecture::all() {
        let large = matches!(architecture.class(), SizeClass::Max | SizeClass::Ultra);
        for (keys, way) in [
            (600, Way::OnePass),
            (3000, if large { Way::TwoPass } else { Way::OnePass }),
            (6000, Way::TwoPass),
        ] {
            let problem = block(&architecture.to_string(), 4, keys, 8);
            let found = groups(&problem, Policy::EXACT);
            assert!(
                matches!(found.as_slice(), [(0, 8, _, found, _)] if *found == way),
                "{architecture}, {keys} keys: {found:?}"
            );
        }
    }
}

#[test]
fn every_row_takes_what_it_takes_alone() {
    for architecture in ["g13p", "g15s", "g15d", "g17d"] {
        for gqa in [1, 2, 3, 4, 6, 8, 12, 16, 33] {
            for keys in [12, 1024, 4097, 8195, 16386, 32769, 65540] {
                for rows in [2, 5, 9, 16] {
                    let problem = block(architecture, gqa, keys.max(rows), rows);
                    let plan = attention(&problem, Policy::EXACT).unwrap();
                    let mut next = 0;
                    for group in &plan.groups {
                        assert_eq!(group.first, next);
                        next += group.rows;
                        for row in group.first..next {
                            let alone = Attention {
                                keys: problem.keys - (rows - 1 - row),
                                rows: 1,
                                ..problem
                            };
                            let alone = attention(&alone, Policy::DEFAULT).unwrap();
                            let alone = &alone.groups[0];
                            assert_eq!((alone.way, alone.blocks), (group.way, group.blocks));
                        }
                    }
                    assert_eq!(next, rows);
                }
            }
        }
    }
}

#[test]
fn a_prompt_and_default_take_what_mlx_takes() {
    let problem = block("g15d", 4, 1025, 17);
    let plan = attention(&problem, Policy::EXACT).unwrap();
    assert_eq!(plan, attention(&problem, Policy::DEFAULT).unwrap());
    assert!(!plan.identical);
    assert_eq!(plan.groups[0].way, Way::Matrix);
    assert!(attention(&problem, Policy::EXACT.all()).unwrap().identical);
    // One pass for all rows: they keep their bits under any policy.
    assert!(
        attention(&block("g15d", 4, 600, 8), Policy::DEFAULT)
            .unwrap()
            .identical
    );
}

#[test]
fn sizes_that_attention_does_not_take_are_refused() {
    for (problem, text) in [
        (
            block("g15d", 1, 3, 4),
            "must not have more rows than keys, found 4 and 3",
        ),
        (
            Attention {
                kv_heads: 3,
                ..block("g15d", 1, 9, 4)
            },
            "must be a multiple",
        ),
        (
            Attention {
                keys: 0,
                ..block("g15d", 1, 9, 4)
            },
            "1 or more",
        ),
    ] {
        let error = attention(&problem, Policy::EXACT).unwrap_err();
        assert!(
            matches!(&error, Error::Invalid(found) if found.contains(text)),
            "{error}"
        );
    }
}
