//! The operations between the quantized products, one at a time: compares a block of rows with the rows alone.

use std::ops::Range;

use dispatch_plan::{AttentionPlan, DensePlan, Way};
use mlx_overlay::{
    Array, Dtype, Mask, Rope, RowPolicy, Stream, addmm, attention, matmul, rms_norm, rope, slice,
    transpose_axes,
};
use serde::{Deserialize, Serialize};

use super::Options;
use crate::kernels;
use crate::values::{self, Noise};
use crate::{Result, setting};

/// An operation between the quantized products of a transformer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case")]
pub enum Operation {
    /// Root-mean-square normalization.
    RmsNorm {
        /// Values per row.
        dims: usize,
    },
    /// Rotary position embedding.
    Rope {
        /// Heads.
        heads: usize,
        /// Values per head.
        dims: usize,
    },
    /// Scaled dot-product attention over a cache.
    Attention {
        /// Heads of the queries.
        heads: usize,
        /// Heads of keys and values.
        kv_heads: usize,
        /// Values per head of queries and keys.
        dims: usize,
        /// Values per head of values.
        value_dims: usize,
        /// Whether each head has a sink.
        sinks: bool,
        /// Positions, including those of the block.
        context: usize,
    },
    /// A product with a dense matrix.
    Dense {
        /// The name.
        name: String,
        /// Outputs per row.
        n: usize,
        /// Values per row.
        k: usize,
        /// Whether something is added to each row.
        bias: bool,
    },
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RmsNorm { dims } => write!(f, "rms_norm over {dims}"),
            Self::Rope { heads, dims } => write!(f, "rope, {heads} heads of {dims}"),
            Self::Attention {
                heads,
                kv_heads,
                dims,
                value_dims,
                sinks,
                context,
            } => {
                write!(f, "attention, {heads} heads over {kv_heads} of {dims}")?;
                if value_dims != dims {
                    write!(f, " and {value_dims}")?;
                }
                let sinks = if *sinks { ", sinks" } else { "" };
                write!(f, "{sinks}, {context} positions")
            }
            Self::Dense { name, n, k, bias } => {
                let bias = if *bias { " with a bias" } else { "" };
                write!(f, "dense product {name} {n}x{k}{bias}")
            }
        }
    }
}

/// An operation under one policy at one number of rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationCell {
    /// The policy.
    pub policy: String,
    /// Rows.
    pub rows: usize,
    /// The kernels that ran and that a policy could change.
    pub kernels: Vec<String>,
    /// Values that were compared, over all seeds and types.
    pub outputs: usize,
    /// Values whose bits differ from those of the row alone.
    pub differing: usize,
}

/// The result for an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationVerdict {
    #[serde(flatten)]
    pub operation: Operation,
    /// How many of these operations the model has.
    pub count: usize,
    /// The kernels of rows alone.
    pub alone: Vec<String>,
    /// Policies under which every row has its bits.
    pub exact: Vec<String>,
    /// All comparisons.
    pub cells: Vec<OperationCell>,
    /// The reason for each policy under which rows differ.
    pub reasons: Vec<(String, String)>,
}

impl OperationVerdict {
    /// The smallest number of rows that differs under a policy.
    pub fn differs_from(&self, policy: &str) -> Option<usize> {
        let mut cells = self
            .cells
            .iter()
            .filter(|cell| cell.policy == policy && cell.differing > 0);
        cells.next().map(|cell| cell.rows)
    }
}

/// The number of blocks to compare for an operation.
pub(super) fn steps(options: &Options) -> usize {
    options.policies.len() * options.rows.len()
}

/// Compares an operation; `step` is called [`steps`] times.
pub(super) fn verdict(
    operation: Operation,
    count: usize,
    options: &Options,
    step: &mut dyn FnMut(),
) -> Result<OperationVerdict> {
    let default = setting::stream(RowPolicy::DEFAULT)?;
    let mut rows = options.rows.clone();
    rows.sort_unstable();
    let mut verdict = OperationVerdict {
        operation,
        count,
        alone: Vec::new(),
        exact: Vec::new(),
        cells: Vec::new(),
        reasons: Vec::new(),
    };
    let mut samples = Vec::new();
    for dtype in options.types() {
        for seed in 0..options.seeds {
            samples.push((
                dtype,
                Sample::new(&verdict.operation, options, dtype, seed, &default)?,
            ));
        }
    }
    for (_, sample) in samples.iter().filter(|(dtype, _)| *dtype == options.dtype) {
        add(&mut verdict.alone, &sample.kernels);
    }
    for &policy in &options.policies {
        let stream = setting::stream(policy)?;
        let mut differs = None;
        for &rows in &rows {
            step();
            let mut cell = OperationCell {
                policy: policy.to_string(),
                rows,
                kernels: Vec::new(),
                outputs: 0,
                differing: 0,
            };
            for (dtype, sample) in &samples {
                // One difference is enough if each comparison takes seconds.
                if options.simulated && differs.is_some() {
                    break;
                }
                let (blocks, kernels) = kernels::of_all(|| sample.block(rows, &stream))?;
                for (alone, row) in sample.alone.iter().zip(blocks) {
                    cell.differing += alone.iter().zip(&row).filter(|(a, b)| a != b).count();
                    cell.outputs += row.len();
                }
                if *dtype == options.dtype {
                    add(&mut cell.kernels, &kernels);
                }
                if cell.differing > 0 {
                    differs.get_or_insert(rows);
                }
            }
            verdict.cells.push(cell);
        }
        let name = policy.to_string();
        match differs {
            Some(rows) => {
                let why = mechanism(&verdict.operation, rows, options, policy)?;
                verdict.reasons.push((name, why));
            }
            // Fewer outputs than the matrix has: for all of them MLX may use another kernel.
            None if !is_whole(&verdict.operation, options)?
                && !is_kept(&verdict.operation, options, policy)? =>
            {
                let why =
                    "its kernel for all outputs is not known: compare all outputs (`--outputs`)";
                verdict.reasons.push((name, why.to_owned()));
            }
            None => verdict.exact.push(name),
        }
    }
    Ok(verdict)
}

fn add(kernels: &mut Vec<String>, more: &[String]) {
    for name in more {
        if !kernels.contains(name) {
            kernels.push(name.clone());
        }
    }
}

/// The reason why rows depend on each other.
fn mechanism(
    operation: &Operation,
    rows: usize,
    options: &Options,
    policy: RowPolicy,
) -> Result<String> {
    let limit = policy.rows().filter(|&most| rows > most as usize);
    if let Some(most) = limit {
        return Ok(format!(
            "a block has at most {most} rows under it: take `exact:{rows}`, or `narrow:{rows}`"
        ));
    }
    let report = "each row is computed independently, so please report this with the output";
    Ok(match operation {
        Operation::RmsNorm { .. } | Operation::Rope { .. } => report.to_owned(),
        Operation::Attention { dims, .. } => match attention_plan(operation, rows, options, policy)?
        {
            Some(plan) if !plan.identical => match plan.groups.first().map(|group| group.way) {
                Some(Way::Matrix) => {
                    "several rows take a matrix kernel, one row a kernel for vectors".to_owned()
                }
                Some(Way::Unfused) => format!(
                    "no fused kernel takes {rows} rows of heads of {dims}: they are computed by products and a softmax"
                ),
                _ => "the number of blocks into which two passes cut the keys depends on the rows"
                    .to_owned(),
            },
            _ => report.to_owned(),
        },
        Operation::Dense { .. } => match dense_plan(operation, rows, options, policy)? {
            Some(plan) if plan.identical => report.to_owned(),
            _ => "one row takes a matrix-vector kernel, several rows a matrix kernel".to_owned(),
        },
    })
}

fn is_whole(operation: &Operation, options: &Options) -> Result<bool> {
    Ok(match *operation {
        Operation::Dense { n, .. } => outputs(operation, options)? == n,
        Operation::Attention {
            heads: of_q,
            kv_heads,
            ..
        } => heads(operation, options)? == [of_q, kv_heads],
        _ => true,
    })
}

/// Whether every row keeps its bits according to the plan.
fn is_kept(operation: &Operation, options: &Options, policy: RowPolicy) -> Result<bool> {
    for &rows in &options.rows {
        let dense = dense_plan(operation, rows, options, policy)?.map(|plan| plan.identical);
        let attention =
            attention_plan(operation, rows, options, policy)?.map(|plan| plan.identical);
        if !dense.or(attention).unwrap_or(false) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn attention_plan(
    operation: &Operation,
    rows: usize,
    options: &Options,
    policy: RowPolicy,
) -> Result<Option<AttentionPlan>> {
    let &Operation::Attention {
        heads,
        kv_heads,
        dims,
        value_dims,
        sinks,
        context,
    } = operation
    else {
        return Ok(None);
    };
    let Some(architecture) = kernels::architecture()? else {
        return Ok(None);
    };
    let extent = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let problem = dispatch_plan::Attention {
        architecture,
        dtype: kernels::dtype(options.dtype),
        heads: extent(heads),
        kv_heads: extent(kv_heads),
        head_dim: extent(dims),
        value_dim: extent(value_dims),
        keys: extent(context.max(rows)),
        rows: extent(rows),
        causal: true,
        mask: false,
        sinks,
    };
    Ok(dispatch_plan::attention(&problem, policy).ok())
}

fn dense_plan(
    operation: &Operation,
    rows: usize,
    options: &Options,
    policy: RowPolicy,
) -> Result<Option<DensePlan>> {
    let &Operation::Dense { n, k, bias, .. } = operation else {
        return Ok(None);
    };
    let Some(architecture) = kernels::architecture()? else {
        return Ok(None);
    };
    let extent = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let problem = dispatch_plan::Dense {
        architecture,
        dtype: kernels::dtype(options.dtype),
        addmm: bias,
        transpose: true,
        m: extent(rows),
        n: extent(n),
        k: extent(k),
        batch: 1,
    };
    Ok(dispatch_plan::dense(&problem, policy).ok())
}

/// Bytes of a dense matrix that a block reads under a policy.
pub(super) fn dense_bytes(
    operation: &Operation,
    options: &Options,
    policy: RowPolicy,
) -> Result<u64> {
    let &Operation::Dense { n, k, .. } = operation else {
        return Ok(0);
    };
    let mut bytes = 0;
    for &rows in &options.rows {
        let passes = dense_plan(operation, rows, options, policy)?
            .map_or(1, |plan| plan.weight_passes.max(1));
        bytes += u64::from(passes) * n as u64 * k as u64 * 2;
    }
    Ok(bytes)
}

/// Whether one row uses other kernels for `b` keys than for `a`, or the library does not report them.
pub(super) fn changes(
    operation: &Operation,
    options: &Options,
    a: usize,
    b: usize,
) -> Result<bool> {
    let at = |keys: usize| -> Result<Option<AttentionPlan>> {
        let mut operation = operation.clone();
        if let Operation::Attention { context, .. } = &mut operation {
            *context = keys;
        }
        attention_plan(&operation, 1, options, RowPolicy::NARROW)
    };
    let what = |plan: Option<AttentionPlan>| {
        plan.and_then(|plan| plan.groups.first().map(|group| (group.way, group.blocks)))
    };
    Ok(differ(what(at(a)?), what(at(b)?)))
}

/// Two unknown plans may differ.
fn differ<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
    a.is_none() || a != b
}

/// The number of outputs of a dense product to compute: at least the requested number, and the fewest that use the
/// same kernels as all.
fn outputs(operation: &Operation, options: &Options) -> Result<usize> {
    let &Operation::Dense { n: whole, .. } = operation else {
        return Ok(0);
    };
    let Some(few) = options.outputs else {
        return Ok(whole);
    };
    let kernels = |outputs: usize| -> Result<Vec<Option<(String, u32)>>> {
        let mut part = operation.clone();
        if let Operation::Dense { n, .. } = &mut part {
            *n = outputs;
        }
        let blocks = options.policies.iter().flat_map(|&policy| {
            let rows = options.rows.iter().chain(&[1]);
            rows.map(move |&rows| (policy, rows))
        });
        let plan = |(policy, rows)| dense_plan(&part, rows, options, policy);
        let name = |plan: Option<DensePlan>| plan.map(|plan| (plan.kernel, plan.tile));
        blocks.map(|block| Ok(name(plan(block)?))).collect()
    };
    let all = kernels(whole)?;
    let candidates = std::iter::successors(Some(few), |few| few.checked_mul(2));
    for few in candidates {
        let n = few.next_multiple_of(8) + whole % 8;
        if n >= whole {
            break;
        }
        if kernels(n)? == all {
            return Ok(n);
        }
    }
    Ok(whole)
}

/// Operands of an operation, and the bits of each row alone.
struct Sample<'a> {
    operation: &'a Operation,
    operands: Vec<Array>,
    alone: Vec<Vec<u32>>,
    kernels: Vec<String>,
    /// Rows of the longest block, and positions before it.
    rows: usize,
    before: usize,
}

impl<'a> Sample<'a> {
    fn new(
        operation: &'a Operation,
        options: &Options,
        dtype: Dtype,
        seed: u64,
        default: &Stream,
    ) -> Result<Self> {
        let mut noise = Noise::new(seed);
        let rows = options.rows.iter().copied().max().unwrap_or(1);
        let mut before = 0;
        let operands = match *operation {
            Operation::RmsNorm { dims } => {
                vec![
                    noise.array(&[rows, dims], 1.0, dtype)?,
                    noise.array(&[dims], 1.0, dtype)?,
                ]
            }
            Operation::Dense { k, bias, .. } => {
                let n = outputs(operation, options)?;
                let mut operands = vec![
                    noise.array(&[rows, k], 1.0, dtype)?,
                    noise.array(&[n, k], 1.0, dtype)?,
                ];
                if bias {
                    operands.push(noise.array(&[n], 1.0, dtype)?);
                }
                operands
            }
            Operation::Rope { heads, dims } => {
                before = options.contexts.iter().copied().max().unwrap_or(0);
                vec![noise.array(&[1, heads, rows, dims], 1.0, dtype)?]
            }
            Operation::Attention {
                dims,
                value_dims,
                sinks,
                context,
                ..
            } => {
                before = context.max(rows) - rows;
                let [heads, kv_heads] = heads(operation, options)?;
                let mut operands = vec![
                    // In the layout of a projection's output: the heads of a row are adjacent.
                    noise.array(&[1, rows, heads, dims], 1.0, dtype)?,
                    noise.array(&[1, kv_heads, before + rows, dims], 1.0, dtype)?,
                    noise.array(&[1, kv_heads, before + rows, value_dims], 1.0, dtype)?,
                ];
                if sinks {
                    operands.push(noise.array(&[heads], 1.0, dtype)?);
                }
                operands
            }
        };
        let mut sample = Self {
            operation,
            operands,
            alone: Vec::new(),
            kernels: Vec::new(),
            rows,
            before,
        };
        for row in 0..rows {
            let (mut bits, kernels) = kernels::of_all(|| sample.compute(row..row + 1, default))?;
            sample.alone.append(&mut bits);
            add(&mut sample.kernels, &kernels);
        }
        Ok(sample)
    }

    /// The bits of each of the first `rows` rows.
    fn block(&self, rows: usize, stream: &Stream) -> Result<Vec<Vec<u32>>> {
        self.compute(0..rows.min(self.rows), stream)
    }

    fn compute(&self, rows: Range<usize>, stream: &Stream) -> Result<Vec<Vec<u32>>> {
        let count = rows.len();
        let result = stream.scope(|| self.result(rows))?;
        let bits = stream.scope(|| values::bits(&result))?;
        // `[rows, values]`, or `[1, heads, rows, values]`.
        let width = result.shape().last().copied().unwrap_or(1);
        let of_row = |row: usize| {
            let rows = bits.chunks_exact(width).skip(row).step_by(count);
            rows.flatten().copied().collect()
        };
        Ok((0..count).map(of_row).collect())
    }

    fn result(&self, rows: Range<usize>) -> Result<Array> {
        let part = |array: &Array, axis: usize, range: Range<usize>| {
            let mut ranges: Vec<Range<usize>> =
                array.shape().iter().map(|&extent| 0..extent).collect();
            ranges[axis] = range;
            Ok::<_, crate::Error>(slice(array, &ranges)?)
        };
        Ok(match (self.operation, &self.operands[..]) {
            (Operation::RmsNorm { .. }, [x, weight]) => rms_norm(&part(x, 0, rows)?, weight, 1e-5)?,
            (Operation::Dense { .. }, [x, w, bias @ ..]) => {
                let (x, w) = (part(x, 0, rows)?, transpose_axes(w, &[1, 0])?);
                match bias.first() {
                    None => matmul(&x, &w)?,
                    Some(bias) => addmm(bias, &x, &w, 1.0, 1.0)?,
                }
            }
            (&Operation::Rope { dims, .. }, [x]) => {
                let offset = self.before + rows.start;
                rope(&part(x, 2, rows)?, Rope { dims, base: 1e4 }, offset)?
            }
            (&Operation::Attention { dims, .. }, [q, k, v, sinks @ ..]) => {
                let q = transpose_axes(&part(q, 1, rows.clone())?, &[0, 2, 1, 3])?;
                let seen = self.before + rows.end;
                let (k, v) = (part(k, 2, 0..seen)?, part(v, 2, 0..seen)?);
                let scale = 1.0 / (dims as f32).sqrt();
                attention(&q, &k, &v, scale, Mask::Causal, sinks.first())?
            }
            _ => {
                return Err(crate::Error::Invalid(
                    "operands of another operation".to_owned(),
                ));
            }
        })
    }
}

/// The numbers of heads to compute: one key head of several, if few outputs are requested and the plans are equal.
fn heads(operation: &Operation, options: &Options) -> Result<[usize; 2]> {
    let &Operation::Attention {
        heads, kv_heads, ..
    } = operation
    else {
        return Ok([1, 1]);
    };
    let mut part = operation.clone();
    if let Operation::Attention {
        heads, kv_heads, ..
    } = &mut part
    {
        (*heads, *kv_heads) = (*heads / *kv_heads, 1);
    }
    for &policy in &options.policies {
        for &rows in options.rows.iter().chain(&[1]) {
            let [whole, part] = [operation, &part]
                .map(|operation| attention_plan(operation, rows, options, policy));
            let (whole, part) = (whole?, part?);
            let fused =
                |plan: &AttentionPlan| plan.groups.iter().all(|group| group.way != Way::Unfused);
            // If attention is not fused, the number of heads affects the kernels of the products.
            if whole != part || !whole.as_ref().is_some_and(fused) {
                return Ok([heads, kv_heads]);
            }
        }
    }
    Ok(if options.outputs.is_some() {
        [heads / kv_heads, 1]
    } else {
        [heads, kv_heads]
    })
}

#[cfg(test)]
mod tests {
    use super::differ;

    #[test]
    fn plans_that_are_not_known_may_differ() {
        assert!(differ(None::<u8>, None) && differ(None, Some(1)) && differ(Some(1), None));
        assert!(differ(Some(1), Some(2)) && !differ(Some(1), Some(1)));
    }
}
