//! The dispatches of attention on a device whose kernels do nothing, which makes all devices, heads, rows and numbers
//! of keys affordable.

use anyhow::{Context, Result, ensure};
use dispatch_plan::{Dtype, Policy, Way};
use metal_sim::trace::Dispatch;
use mlx_terms::{Architecture, SizeClass};

use super::case::{Mask, Operation, Setting, Shape};
use super::matrix::THRESHOLDS;
use crate::driver::Driver;

/// Counts and findings of a check.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Blocks, under each policy.
    pub blocks: u64,
    /// Rows of those under `exact`.
    pub rows: u64,
    /// Dispatches that compute them, without second passes.
    pub dispatches: u64,
    /// The findings, one line each.
    pub findings: Vec<String>,
}

/// Query heads per key head.
const GQA: [u32; 8] = [1, 2, 4, 5, 6, 8, 12, 16];
const ROWS: [u32; 6] = [2, 4, 5, 8, 9, 16];

/// Compares, on one device, the dispatches of each block with those of each of its rows alone: the same kernel over the
/// row's own keys, with the number of blocks of one row. Adjacent rows with equal dispatches share one dispatch of at
/// most 8 rows (with two passes also of at most 32 simdgroups). The last row's number of keys is within `around` of
/// each threshold up to `most`. Under each policy, including `default`, the block dispatches what the plan says.
///
/// # Errors
/// The driver's errors.
pub fn check_names(
    driver: &Driver,
    architecture: Architecture,
    head_dim: u32,
    around: u32,
    most: u32,
) -> Result<Names> {
    let mut names = Names::default();
    let setting = Setting {
        run: false,
        ..Setting::new(architecture)
    };
    for threshold in THRESHOLDS.into_iter().filter(|&keys| keys <= most) {
        let mut operations = Vec::new();
        for keys in threshold - around..=threshold + around {
            for gqa in GQA {
                for rows in ROWS {
                    operations.push(Operation {
                        shape: Shape::Attention {
                            heads: gqa,
                            kv_heads: 1,
                            head_dim,
                            value_dim: head_dim,
                            keys,
                            mask: Mask::Causal,
                            sinks: false,
                            layout: "heads",
                        },
                        dtype: Dtype::Float16,
                        seed: 1,
                        batch: 1,
                        rows: vec![rows],
                        policies: ["exact", "narrow", "default"].map(str::to_owned).to_vec(),
                        run: false,
                        record: false,
                    });
                }
            }
        }
        for some in operations.chunks(64) {
            let answers: Vec<super::case::OperationAnswer> =
                driver.ask(&setting.device(), None, None, some)?;
            for (operation, answer) in some.iter().zip(&answers) {
                for block in &answer.blocks {
                    names.blocks += 1;
                    let policy: Policy = block.policy.parse()?;
                    let outcome = as_planned(architecture, operation, policy, &block.dispatches)
                        .and_then(|()| match policy {
                            Policy::EXACT => {
                                names.rows += u64::from(block.m);
                                compare(operation, &answer.alone.rows, &block.dispatches)
                            }
                            _ => Ok(0),
                        });
                    match outcome {
                        Ok(count) => names.dispatches += count,
                        Err(why) => names
                            .findings
                            .push(format!("{architecture}, {policy}: {why:#}; {operation}")),
                    }
                }
            }
        }
    }
    Ok(names)
}

/// The tested GPUs: sizes p, s and d of generations 13 to 17.
pub fn architectures() -> impl Iterator<Item = Architecture> {
    (13..=17).flat_map(|generation| {
        [SizeClass::Phone, SizeClass::Max, SizeClass::Ultra]
            .into_iter()
            .filter_map(move |size| Architecture::new(generation, size))
    })
}

/// How a row is computed, as far as its bits depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Alone {
    /// MLX's products and softmax.
    Unfused,
    /// A kernel, and its number of blocks.
    Fused(String),
}

fn alone(dispatches: &[Dispatch]) -> Alone {
    dispatches
        .iter()
        .find(|dispatch| is_first_pass(dispatch))
        .map_or(Alone::Unfused, |dispatch| Alone::Fused(normal(dispatch)))
}

fn is_first_pass(dispatch: &Dispatch) -> bool {
    dispatch.kernel.starts_with("sdpa_vector") && !dispatch.kernel.contains("2pass_2")
}

/// The kernel, and the blocks into which two passes split the keys. The kernel for several rows of large groups of
/// heads counts as the one for a single row.
fn normal(dispatch: &Dispatch) -> String {
    let kernel = dispatch.kernel.replace("_gqa_rows_", "_gqa_");
    match blocks_of(dispatch) {
        0 => kernel,
        blocks => format!("{kernel} in {blocks} blocks"),
    }
}

fn blocks_of(dispatch: &Dispatch) -> u64 {
    if dispatch.kernel.contains("_2pass_1") {
        dispatch.grid[2]
    } else {
        0
    }
}

fn compare(operation: &Operation, rows: &[Vec<Dispatch>], block: &[Dispatch]) -> Result<u64> {
    let Shape::Attention { heads, keys, .. } = operation.shape else {
        anyhow::bail!("no attention");
    };
    let most = |what: &Alone| match what {
        // A simdgroup per row and head; a threadgroup has 32.
        Alone::Fused(name) if name.contains("_2pass_") && !name.contains("_gqa_") => {
            8.min(32 / heads as usize).max(1)
        }
        Alone::Fused(_) => 8,
        Alone::Unfused => 1,
    };
    let wanted: Vec<Alone> = rows.iter().map(|row| alone(row)).collect();
    // Rows in the order of their dispatches.
    let mut groups: Vec<(usize, Alone)> = Vec::new();
    for dispatch in block {
        if is_first_pass(dispatch) {
            let count = count_of(dispatch)?;
            let end: usize = groups.iter().map(|(rows, _)| rows).sum::<usize>() + count;
            let own = keys as usize - (rows.len() - end.min(rows.len()));
            let bound = argument(dispatch, "N").context("no argument N")?;
            ensure!(
                bound as usize == own,
                "rows up to {end} see {bound} keys instead of {own}"
            );
            groups.push((count, Alone::Fused(normal(dispatch))));
        } else if dispatch.kernel.contains("softmax") {
            groups.push((1, Alone::Unfused));
        }
    }
    let found: Vec<&Alone> = groups
        .iter()
        .flat_map(|(count, what)| std::iter::repeat_n(what, *count))
        .collect();
    ensure!(
        found == wanted.iter().collect::<Vec<_>>(),
        "the block takes {groups:?}, its rows alone {wanted:?}"
    );
    let least: usize = wanted
        .chunk_by(|a, b| a == b)
        .map(|run| run.len().div_ceil(run.first().map_or(1, most)))
        .sum();
    ensure!(
        groups.len() == least && groups.iter().all(|(count, what)| *count <= most(what)),
        "{} dispatches of {groups:?}, where {least} are enough",
        groups.len()
    );
    Ok(groups.len() as u64)
}

/// Checks that a block dispatches the kernels of its plan, over as many keys and in as many blocks.
fn as_planned(
    architecture: Architecture,
    operation: &Operation,
    policy: Policy,
    block: &[Dispatch],
) -> Result<()> {
    let Shape::Attention {
        heads,
        kv_heads,
        head_dim,
        value_dim,
        keys,
        ..
    } = operation.shape
    else {
        anyhow::bail!("no attention");
    };
    let problem = dispatch_plan::Attention {
        architecture,
        dtype: operation.dtype,
        heads,
        kv_heads,
        head_dim,
        value_dim,
        keys,
        rows: operation.rows.iter().copied().max().unwrap_or(1),
        causal: true,
        mask: false,
        sinks: false,
    };
    let plan = dispatch_plan::attention(&problem, policy)?;
    // Keys, kernel and blocks of what reads the keys; matrix kernels and MLX's products by their family.
    let planned: Vec<(String, u32)> = plan
        .groups
        .iter()
        .map(|group| match (&group.kernel, group.way) {
            (Some(kernel), _) => (format!("{kernel} over {}", group.keys), group.blocks),
            (None, Way::Matrix) => ("steel_attention".to_owned(), 0),
            (None, _) => ("softmax".to_owned(), 0),
        })
        .collect();
    let mut found = Vec::new();
    for dispatch in block {
        if is_first_pass(dispatch) {
            let keys = argument(dispatch, "N").context("no argument N")?;
            let kernel = format!("{} over {keys}", dispatch.kernel);
            found.push((kernel, u32::try_from(blocks_of(dispatch))?));
        } else if dispatch.kernel.starts_with("steel_attention") {
            found.push(("steel_attention".to_owned(), 0));
        } else if dispatch.kernel.contains("softmax") {
            found.push(("softmax".to_owned(), 0));
        }
    }
    ensure!(found == planned, "takes {found:?}, planned {planned:?}");
    Ok(())
}

/// The rows that a dispatch computes: one pass has them in its grid, two passes in a threadgroup.
fn count_of(dispatch: &Dispatch) -> Result<usize> {
    let rows = match argument(dispatch, "rows") {
        Some(rows) => rows,
        None if dispatch.kernel.contains("_2pass_") => dispatch.group[2],
        None => dispatch.grid[1],
    };
    Ok(usize::try_from(rows)?)
}

/// A number that was bound as bytes.
fn argument(dispatch: &Dispatch, name: &str) -> Option<u64> {
    let bytes = dispatch
        .arguments
        .iter()
        .find(|argument| argument.name == name)?
        .bytes
        .as_deref()?;
    let byte = |at: usize| u64::from_str_radix(bytes.get(2 * at..2 * at + 2)?, 16).ok();
    (0..4)
        .rev()
        .try_fold(0, |value, at| Some(value << 8 | byte(at)?))
}
