//! Every kernel that the dispatch can ask a library for: the plan is queried for one product of each kind that it
//! distinguishes.

use std::collections::{BTreeMap, BTreeSet};

use mlx_terms::{Architecture, Format, Mode, Policy};

use crate::{Attention, Dense, DenseWay, Dtype, Error, Op, Plan, Problem, attention, dense, plan};

/// One device of each kind: generations 13 and 15 differ in the kernels for several rows, 17 has matrix units, and its
/// size `s` has its own tile.
const ARCHITECTURES: [&str; 3] = ["applegpu_g13d", "applegpu_g15d", "applegpu_g17s"];
/// Each tile of several rows, two tiles, and the matrix kernels below and above 32 rows and with unsplit K.
const ROWS: [u32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 24, 33, 2048];
/// One row, several, and enough for a matrix kernel.
const GATHERED_ROWS: [u32; 3] = [1, 2, 2048];
/// Outputs with transposed weights: multiples of the tiles of 8, 32 and 64, and others; few, and more than the 4,096
/// above which rows are halved and matrix kernels start at fewer rows.
const OUTPUTS: [u32; 7] = [13, 16, 32, 64, 8192, 20_000, 20_001];
/// Values with weights that are not transposed: qvm, and the two ways to split it; 1,000 excludes the matrix units.
const VALUES: [u32; 4] = [512, 1000, 2048, 16384];
/// Products, and the matrices that a gather picks from: one, several, and so many single rows that a gather sorts them,
/// with 256 and with 32 per matrix.
const BATCHES: [(u32, u32); 2] = [(1, 1), (2, 1)];
const GATHERED_BATCHES: [(u32, u32); 3] = [(1, 1), (256, 1), (256, 8)];

/// The names that any quantized product can ask for, under any policy and routing table, each with a plan that asks for
/// it. `nax`: with the matrix units of generation 17, whose kernels are in a library for macOS 26.2 or newer.
///
/// # Errors
/// [`Error::Unavailable`]; any other error is a bug in this function.
pub fn kernels(nax: bool) -> Result<BTreeMap<String, Plan>, Error> {
    let mut asked = BTreeMap::new();
    for architecture in ARCHITECTURES {
        let architecture = device(architecture)?;
        for format in Format::all() {
            for &dtype in Dtype::ALL {
                let problem = Problem {
                    // Products that the matrix units do not support use the kernels next to them, so both are asked
                    // for.
                    nax: nax && architecture.has_matrix_units(),
                    dtype,
                    ..Problem::new(architecture, 0, 0).with_format(format)
                };
                for shape in shapes(problem) {
                    add_rows(&mut asked, shape)?;
                }
            }
        }
    }
    Ok(asked)
}

/// The overlay's kernels that any dense product can ask for: all tiles of one row (few outputs, few or many values,
/// both layouts of the weights) with all numbers of rows that share their reads.
///
/// # Errors
/// [`Error::Unavailable`]; any other error is a bug in this function.
pub fn dense_kernels() -> Result<BTreeSet<String>, Error> {
    let architecture = device(ARCHITECTURES[1])?;
    let mut asked = BTreeSet::new();
    for n in [3, 64, 512, 2048, 4096] {
        for k in [64, 65, 8192, 16 * n] {
            for m in 2..=8 {
                for &dtype in Dtype::ALL {
                    for transpose in [true, false] {
                        let problem = Dense {
                            architecture,
                            dtype,
                            addmm: false,
                            transpose,
                            m,
                            n,
                            k,
                            batch: 1,
                        };
                        let plan = dense(&problem, Policy::EXACT)?;
                        if plan.way == DenseWay::Streamed {
                            asked.insert(plan.kernel);
                        }
                    }
                }
            }
        }
    }
    Ok(asked)
}

/// The kernels that read the keys of attention under any policy: MLX's own, and the overlay's for large groups of
/// heads.
///
/// # Errors
/// [`Error::Unavailable`]; any other error is a bug in this function.
pub fn attention_kernels() -> Result<BTreeSet<String>, Error> {
    // Two passes start at other numbers of keys on a small GPU.
    let architectures = [device(ARCHITECTURES[1])?, device("applegpu_g15p")?];
    let dims = [64, 96, 128, 192, 256, 512].map(|dim| (dim, dim));
    let mut asked = BTreeSet::new();
    for (head_dim, value_dim) in dims.into_iter().chain([(192, 128), (96, 64)]) {
        for (heads, architecture) in [1, 8, 12, 16]
            .into_iter()
            .flat_map(|heads| architectures.map(|one| (heads, one)))
        {
            for keys in [512, 1024, 4096, 8193] {
                for (rows, policy) in [(1, Policy::DEFAULT), (2, Policy::EXACT)] {
                    for &dtype in Dtype::ALL {
                        let problem = Attention {
                            architecture,
                            dtype,
                            heads,
                            kv_heads: 1,
                            head_dim,
                            value_dim,
                            keys,
                            rows,
                            causal: true,
                            mask: false,
                            sinks: false,
                        };
                        let groups = attention(&problem, policy)?.groups;
                        asked.extend(groups.into_iter().filter_map(|group| group.kernel));
                    }
                }
            }
        }
    }
    Ok(asked)
}

fn device(name: &str) -> Result<Architecture, Error> {
    name.parse()
        .map_err(|error| Error::Invalid(format!("{error}")))
}

/// The products of a format that differ in more than their rows.
fn shapes(problem: Problem) -> Vec<Problem> {
    let mut shapes = Vec::new();
    for &op in Op::ALL {
        let quantizes = op.quantizes_x();
        if quantizes && problem.mode == Mode::Affine {
            continue;
        }
        // Only nvfp4 has a scale for the whole tensor, and quantized_matmul does not accept one.
        let scales: &[bool] = if problem.mode == Mode::Nvfp4 && op != Op::QuantizedMatmul {
            &[false, true]
        } else {
            &[false]
        };
        let batches = match op {
            Op::GatherQmm | Op::GatherQqmm => &GATHERED_BATCHES[..],
            // qqmm multiplies only matrices.
            Op::QqMatmul => &BATCHES[..1],
            Op::QuantizedMatmul => &BATCHES,
        };
        for transpose in [true, false] {
            if quantizes && !transpose {
                continue;
            }
            for (n, k) in sizes(problem, transpose) {
                for &(batch, experts) in batches {
                    for &global_scale in scales {
                        shapes.push(Problem {
                            op,
                            transpose,
                            n,
                            k,
                            batch,
                            experts,
                            right_sorted: op.gathers(),
                            global_scale,
                            ..problem
                        });
                    }
                }
            }
        }
    }
    shapes
}

/// Pairs of n and k: the packed axis is a multiple of the group.
fn sizes(problem: Problem, transpose: bool) -> Vec<(u32, u32)> {
    let group = problem.group_size;
    let pairs = |outputs: &[u32], values: &[u32]| {
        let pair = |&n: &u32| values.iter().map(move |&k| (n, k)).collect::<Vec<_>>();
        outputs.iter().flat_map(pair).collect::<Vec<_>>()
    };
    if !transpose {
        let outputs = [group, 3 * group, 64 * group];
        return pairs(&outputs, &VALUES);
    }
    // Quads of lanes; sizes that qmv_fast computes completely at every width, and one group more or less.
    let values = [64, 128, 4096, 4096 - group, 2048 + group];
    let values = values
        .into_iter()
        .filter(|k| k.is_multiple_of(group))
        .collect::<Vec<_>>();
    pairs(&OUTPUTS, &values)
}

fn add_rows(asked: &mut BTreeMap<String, Plan>, shape: Problem) -> Result<(), Error> {
    for &m in if shape.op.gathers() {
        &GATHERED_ROWS[..]
    } else {
        &ROWS
    } {
        // Without limit: a block's limit only adds what `default` asks for.
        for policy in Policy::KINDS.iter().map(|policy| policy.all()) {
            let plan = plan(&Problem { m, ..shape }, policy, &[])?;
            asked.insert(plan.kernel.clone(), plan);
        }
    }
    Ok(())
}
