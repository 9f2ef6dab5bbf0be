//! The compared operations.

use anyhow::{Context, Result};
use dispatch_plan::Dtype;
use metal_sim::{Contraction, Reduction};

use super::case::{Experts, Mask, Operation, Product, Setting, Shape};
use super::pairwise::pairwise;
use crate::identity::Tier;

/// A family of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Family {
    /// `scaled_dot_product_attention`.
    Attention,
    /// `matmul` and `addmm`.
    Dense,
    /// Sorted gathers, gated delta, and quantized products that are not transposed.
    Rest,
}

/// An operation and the device that evaluates it.
pub type Job = (Setting, Operation);

const POLICIES: [&str; 3] = ["default", "exact", "narrow"];
const DTYPES: [Dtype; 3] = [Dtype::Float32, Dtype::Float16, Dtype::Bfloat16];
const CONTRACTIONS: [Contraction; 2] = [Contraction::Fused, Contraction::Split];
const REDUCTIONS: [Reduction; 3] = [
    Reduction::Butterfly,
    Reduction::Neighbours,
    Reduction::Sequential,
];
/// Numbers of keys at which a row alone changes its kernel or its number of blocks.
pub(crate) const THRESHOLDS: [u32; 6] = [1024, 4096, 8192, 16384, 32768, 65536];

/// The operations of a family.
///
/// # Errors
/// Never: the architectures here are valid.
pub fn jobs(family: Family, tier: Tier) -> Result<Vec<Job>> {
    match (family, tier) {
        (Family::Attention, Tier::Core) => attention_core(),
        (Family::Attention, Tier::Full) => attention_full(),
        (Family::Dense, Tier::Core) => dense_core(),
        (Family::Dense, Tier::Full) => dense_full(),
        (Family::Rest, _) => rest(tier),
    }
}

fn setting(architecture: &str) -> Result<Setting> {
    Ok(Setting::new(
        format!("applegpu_{architecture}")
            .parse()
            .with_context(|| format!("{architecture} is not an architecture"))?,
    ))
}

/// Attention (batch 1, float32 unless changed).
struct Attention {
    heads: [u32; 2],
    dims: [u32; 2],
    keys: u32,
    rows: u32,
    mask: Mask,
    sinks: bool,
    layout: &'static str,
    batch: u32,
    dtype: Dtype,
    seed: u64,
}

impl Attention {
    fn new(heads: [u32; 2], dim: u32, keys: u32, rows: u32) -> Self {
        Self {
            heads,
            dims: [dim, dim],
            keys,
            rows,
            mask: Mask::Causal,
            sinks: false,
            layout: "heads",
            batch: 1,
            dtype: Dtype::Float32,
            seed: 1,
        }
    }

    fn operation(&self) -> Operation {
        Operation {
            shape: Shape::Attention {
                heads: self.heads[0],
                kv_heads: self.heads[1],
                head_dim: self.dims[0],
                value_dim: self.dims[1],
                keys: self.keys,
                mask: self.mask,
                sinks: self.sinks,
                layout: self.layout,
            },
            dtype: self.dtype,
            seed: self.seed,
            batch: self.batch,
            rows: vec![self.rows],
            policies: POLICIES.map(str::to_owned).to_vec(),
            run: true,
            record: false,
        }
    }
}

/// One case for each way in which a row alone differs from a block: for CI.
fn attention_core() -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    let mut push = |architecture: &str, case: Attention| -> Result<()> {
        jobs.push((setting(architecture)?, case.operation()));
        Ok(())
    };
    // Across the threshold of two passes on large devices, and that of the blocks on an Ultra.
    push("g15d", Attention::new([4, 1], 64, 1026, 5))?;
    push("g15s", Attention::new([6, 1], 64, 1026, 5))?;
    push(
        "g15s",
        Attention {
            mask: Mask::None,
            ..Attention::new([4, 2], 64, 1030, 4)
        },
    )?;
    // Two passes if heads share keys, on a small device.
    push(
        "g15p",
        Attention {
            dtype: Dtype::Bfloat16,
            ..Attention::new([2, 1], 64, 4098, 4)
        },
    )?;
    // One pass, more than 8 rows, and heads times rows above 32.
    push(
        "g15p",
        Attention {
            batch: 2,
            ..Attention::new([16, 2], 64, 40, 9)
        },
    )?;
    // Never fused; and other layouts, masks and sinks.
    push(
        "g15d",
        Attention {
            layout: "positions",
            ..Attention::new([4, 2], 80, 33, 4)
        },
    )?;
    push(
        "g15p",
        Attention {
            mask: Mask::Bool,
            layout: "positions",
            ..Attention::new([4, 2], 64, 65, 9)
        },
    )?;
    push(
        "g15d",
        Attention {
            mask: Mask::Additive,
            dims: [96, 64],
            ..Attention::new([5, 1], 96, 70, 8)
        },
    )?;
    push(
        "g15p",
        Attention {
            sinks: true,
            ..Attention::new([8, 1], 64, 70, 5)
        },
    )?;
    push(
        "g15d",
        Attention {
            dtype: Dtype::Float16,
            ..Attention::new([2, 2], 256, 50, 16)
        },
    )?;
    // Head dim 512: unfused below 1,024 keys, and never fused in a block.
    push(
        "g13s",
        Attention {
            dtype: Dtype::Bfloat16,
            ..Attention::new([8, 1], 512, 12, 4)
        },
    )?;
    push("g15d", Attention::new([8, 1], 512, 1025, 4))?;
    // The kernel for large groups of heads.
    push("g15d", Attention::new([8, 1], 64, 8193, 3))?;
    Ok(jobs)
}

/// All pairs of values of two dimensions occur (`pairwise`). One dimension is the last row's number of keys: one below
/// each threshold, at it, one above, and such that the threshold is in the middle of the block. From 32,768 keys on
/// there is one head of keys and values of 64 and at most two sequences; from 8,192 on one head. In addition: the
/// kernel for large groups of heads, which has more than two conditions, and head dim 512.
fn attention_full() -> Result<Vec<Job>> {
    const SIZES: [&str; 3] = ["g15p", "g15s", "g15d"];
    const GQA: [u32; 9] = [1, 2, 3, 4, 5, 6, 8, 12, 16];
    const DIMS: [[u32; 2]; 8] = [
        [64, 64],
        [80, 80],
        [96, 96],
        [128, 128],
        [192, 192],
        [256, 256],
        [192, 128],
        [96, 64],
    ];
    const MASKS: [Mask; 4] = [Mask::Causal, Mask::None, Mask::Bool, Mask::Additive];
    const BATCHES: [u32; 3] = [1, 2, 5];
    const ROWS: [u32; 6] = [2, 4, 5, 8, 9, 16];
    let mut jobs = Vec::new();
    let sizes = [
        SIZES.len(),
        THRESHOLDS.len() * 4,
        GQA.len(),
        DIMS.len(),
        MASKS.len(),
        2,
        2,
        BATCHES.len(),
        DTYPES.len(),
        ROWS.len(),
        CONTRACTIONS.len(),
        REDUCTIONS.len(),
        2,
    ];
    for (number, case) in pairwise(&sizes).into_iter().enumerate() {
        let [
            size,
            at,
            gqa,
            dim,
            mask,
            sinks,
            layout,
            batch,
            dtype,
            rows,
            contraction,
            reduction,
            attack,
        ] = case.try_into().ok().context("thirteen dimensions")?;
        let rows = ROWS[rows];
        let threshold = THRESHOLDS[at / 4];
        let keys = match at % 4 {
            0 => threshold - 1,
            1 => threshold,
            2 => threshold + 1,
            _ => threshold + rows / 2,
        };
        let kv_heads = if threshold < 8192 { 2 } else { 1 };
        let large = threshold >= 32768;
        let seed = number as u64 + 1;
        let operation = Attention {
            heads: [GQA[gqa] * kv_heads, kv_heads],
            dims: if large { [64, 64] } else { DIMS[dim] },
            keys,
            rows,
            mask: MASKS[mask],
            sinks: sinks == 1,
            layout: ["heads", "positions"][layout],
            batch: if large {
                BATCHES[batch].min(2)
            } else {
                BATCHES[batch]
            },
            dtype: DTYPES[dtype],
            seed,
        }
        .operation();
        jobs.push((
            Setting {
                contraction: CONTRACTIONS[contraction],
                reduction: REDUCTIONS[reduction],
                attack: (attack == 1).then_some(seed),
                ..setting(SIZES[size])?
            },
            operation,
        ));
    }
    for (gqa, dim) in [(8, 64), (8, 128), (12, 128), (16, 128)] {
        for (rows, keys) in [(2, 8192), (4, 8193), (5, 8195), (8, 8191)] {
            let dtype = DTYPES[rows as usize % 3];
            for architecture in ["g15d", "g15p"] {
                let case = Attention {
                    dtype,
                    ..Attention::new([gqa, 1], dim, keys, rows)
                };
                jobs.push((setting(architecture)?, case.operation()));
            }
        }
    }
    for architecture in ["g13s", "g13p", "g15d"] {
        for keys in [12, 1023, 1024, 1026] {
            for (gqa, rows, dtype) in [(8, 4, Dtype::Float32), (4, 9, Dtype::Bfloat16)] {
                let case = Attention {
                    dtype,
                    ..Attention::new([gqa, 1], 512, keys, rows)
                };
                jobs.push((setting(architecture)?, case.operation()));
            }
        }
    }
    Ok(jobs)
}

fn dense(shape: Shape, dtype: Dtype, rows: Vec<u32>, batch: u32, seed: u64) -> Operation {
    let beyond = rows.iter().any(|&m| m * batch > 16);
    let policy = |name: &str| {
        if beyond && name != "default" {
            format!("{name}:all")
        } else {
            name.to_owned()
        }
    };
    Operation {
        shape,
        dtype,
        seed,
        batch,
        rows,
        policies: POLICIES.map(policy).to_vec(),
        run: true,
        record: false,
    }
}

fn matrix(n: u32, k: u32, form: &'static str) -> Product {
    Product {
        n,
        k,
        form,
        weights: "matrix",
        heads: 1,
    }
}

fn dense_core() -> Result<Vec<Job>> {
    let addmm = |product, bias| Shape::Addmm {
        product,
        alpha: "0.5",
        beta: "2",
        bias,
    };
    let other = |weights, heads| Product {
        weights,
        heads,
        ..matrix(40, 68, "nt")
    };
    let float = Dtype::Float32;
    let brain = Dtype::Bfloat16;
    [
        (
            "g15d",
            dense(
                Shape::Matmul(matrix(64, 130, "nt")),
                float,
                vec![2, 5, 8, 9, 16, 33],
                1,
                1,
            ),
        ),
        (
            "g15d",
            dense(
                Shape::Matmul(matrix(100, 130, "nn")),
                float,
                vec![2, 8, 11],
                1,
                2,
            ),
        ),
        (
            "g15d",
            dense(Shape::Matmul(matrix(3, 65, "nt")), brain, vec![2, 8], 1, 3),
        ),
        (
            "g15p",
            dense(
                Shape::Matmul(matrix(1, 2048, "nt")),
                float,
                vec![2, 7],
                1,
                4,
            ),
        ),
        (
            "g13s",
            dense(
                Shape::Matmul(matrix(64, 2048, "nt")),
                Dtype::Float16,
                vec![4],
                1,
                5,
            ),
        ),
        (
            "g17s",
            dense(Shape::Matmul(matrix(4100, 64, "nt")), brain, vec![5], 1, 6),
        ),
        (
            "g15d",
            dense(Shape::Matmul(matrix(4100, 65, "nn")), float, vec![3], 1, 7),
        ),
        (
            "g15d",
            dense(
                addmm(matrix(64, 130, "nt"), "vector"),
                brain,
                vec![2, 5, 8],
                1,
                8,
            ),
        ),
        (
            "g15d",
            dense(addmm(matrix(64, 130, "nn"), "matrix"), float, vec![4], 2, 9),
        ),
        (
            "g15d",
            dense(addmm(matrix(1, 130, "nt"), "row"), float, vec![4], 1, 10),
        ),
        (
            "g15d",
            dense(
                Shape::Matmul(matrix(64, 130, "strided")),
                float,
                vec![4],
                2,
                11,
            ),
        ),
        (
            "g15d",
            dense(Shape::Matmul(other("batched", 1)), float, vec![2, 5], 3, 12),
        ),
        (
            "g15d",
            dense(Shape::Matmul(other("folded", 4)), float, vec![2, 5], 2, 13),
        ),
    ]
    .into_iter()
    .map(|(architecture, operation)| Ok((setting(architecture)?, operation)))
    .collect()
}

/// Every K with every N as float32 products with transposed weights, of 2 to 16 and 33 rows; and all pairs of values of
/// two dimensions (`pairwise`) at 2, 3, 8, 9, 16 and 33 rows.
fn dense_full() -> Result<Vec<Job>> {
    const K: [u32; 5] = [64, 65, 130, 2048, 4100];
    const N: [u32; 6] = [1, 3, 64, 2048, 4096, 4100];
    const ARCHITECTURES: [&str; 4] = ["g13p", "g15s", "g15d", "g17s"];
    const FORMS: [&str; 3] = ["nt", "nn", "strided"];
    const WEIGHTS: [&str; 3] = ["matrix", "batched", "folded"];
    const ADDED: [Option<(&str, &str, &str)>; 6] = [
        None,
        None,
        Some(("1", "1", "vector")),
        Some(("0.5", "2", "vector")),
        Some(("1", "1", "row")),
        Some(("1", "0.5", "matrix")),
    ];
    let mut jobs = Vec::new();
    let all: Vec<u32> = (2..=16).chain([33]).collect();
    for k in K {
        for n in N {
            let shape = Shape::Matmul(matrix(n, k, "nt"));
            let operation = dense(shape, Dtype::Float32, all.clone(), 1, jobs.len() as u64 + 1);
            jobs.push((setting("g15d")?, operation));
        }
    }
    let sizes = [
        K.len(),
        N.len(),
        ARCHITECTURES.len(),
        FORMS.len(),
        WEIGHTS.len(),
        ADDED.len(),
        DTYPES.len(),
        2,
        CONTRACTIONS.len(),
        REDUCTIONS.len(),
        2,
    ];
    for case in pairwise(&sizes) {
        let [
            k,
            n,
            architecture,
            form,
            weights,
            added,
            dtype,
            batch,
            contraction,
            reduction,
            attack,
        ] = case.try_into().ok().context("eleven dimensions")?;
        let product = Product {
            weights: WEIGHTS[weights],
            heads: if WEIGHTS[weights] == "folded" { 4 } else { 1 },
            ..matrix(N[n], K[k], FORMS[form])
        };
        // A summand for heads that share weights would have its own axes.
        let shape = match ADDED[added].filter(|_| WEIGHTS[weights] == "matrix") {
            None => Shape::Matmul(product),
            Some((alpha, beta, bias)) => Shape::Addmm {
                product,
                alpha,
                beta,
                bias,
            },
        };
        let seed = jobs.len() as u64 + 1;
        let operation = dense(
            shape,
            DTYPES[dtype],
            vec![2, 3, 8, 9, 16, 33],
            1 + batch as u32,
            seed,
        );
        jobs.push((
            Setting {
                contraction: CONTRACTIONS[contraction],
                reduction: REDUCTIONS[reduction],
                attack: (attack == 1).then_some(seed),
                ..setting(ARCHITECTURES[architecture])?
            },
            operation,
        ));
    }
    Ok(jobs)
}

/// 60 picks, which are not sorted in mlx-lm, and 64, which are, and several rows per pick; gated delta around its
/// chunks of 8; products that are not transposed around split K.
fn rest(tier: Tier) -> Result<Vec<Job>> {
    let architectures: &[&str] = match tier {
        Tier::Core => &["g15d"],
        Tier::Full => &["g13s", "g15p", "g15d", "g17s"],
    };
    let dtypes: &[Dtype] = match tier {
        Tier::Core => &[Dtype::Float32],
        Tier::Full => &DTYPES,
    };
    let mut jobs = Vec::new();
    for architecture in architectures {
        for &dtype in dtypes {
            let experts = Experts {
                n: 64,
                k: 128,
                experts: 8,
                picks: 4,
                rows_a_pick: 1,
            };
            let several = Experts {
                rows_a_pick: 3,
                ..experts
            };
            let delta = Shape::GatedDelta {
                heads: 16,
                kv_heads: 16,
                head_dim: 128,
                value_dim: 128,
            };
            let shapes = [
                (Shape::GatherMm(experts), vec![2, 15, 16]),
                (Shape::GatherMm(several), vec![16]),
                (Shape::GatherQmm(experts), vec![2, 15, 16]),
                (Shape::GatherQmm(several), vec![16]),
                (delta, vec![8, 9, 16, 17]),
                (Shape::QmmN { n: 128, k: 512 }, vec![2, 5, 16, 33]),
                (Shape::QmmN { n: 128, k: 2048 }, vec![2, 5, 16, 33]),
            ];
            for (shape, rows) in shapes {
                let seed = jobs.len() as u64 + 1;
                jobs.push((setting(architecture)?, dense(shape, dtype, rows, 1, seed)));
            }
        }
    }
    Ok(jobs)
}
