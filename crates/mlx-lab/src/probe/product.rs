//! One quantized product: compares rows together with the same rows alone.

use std::collections::BTreeMap;

use dispatch_plan::{Plan, function_of};
use mlx_overlay::{
    Array, Dtype, PolicyKind, QuantizedMatrix, RowPolicy, Stream, quantized_matmul, slice,
};

use super::{Cell, Layer, LayerVerdict, Options, WideRow};
use crate::kernels::{self, plan};
use crate::product::Product;
use crate::setting;
use crate::values::{self, Noise};
use crate::{Error, Result};

/// The dispatches of a product.
struct Run {
    bits: Vec<u32>,
    kernel: String,
    function: String,
}

/// The number of blocks to compare for a layer: one for each policy, number of rows, type and seed.
pub(super) fn steps(options: &Options) -> usize {
    options.policies.len() * options.rows.len() * options.types().len() * options.seeds as usize
}

/// Compares a layer's product; `step` is called [`steps`] times.
pub(super) fn verdict(
    layer: &Layer,
    options: &Options,
    step: &mut dyn FnMut(),
) -> Result<LayerVerdict> {
    let product = &layer.product;
    let default = setting::stream(RowPolicy::DEFAULT)?;
    let mut verdict = LayerVerdict {
        layer: layer.clone(),
        alone: String::new(),
        alone_function: String::new(),
        wide: None,
        exact: Vec::new(),
        cells: Vec::new(),
    };
    let streams = options
        .policies
        .iter()
        .map(|&policy| Ok((policy, setting::stream(policy)?)))
        .collect::<Result<Vec<_>>>()?;
    for (policy, _) in &streams {
        verdict.cells.extend(options.rows.iter().map(|&rows| Cell {
            policy: policy.to_string(),
            rows,
            kernel: String::new(),
            function: String::new(),
            weight_passes: 0,
            weight_bytes: 0,
            outputs: 0,
            differing: 0,
        }));
    }
    let mut differs = vec![false; streams.len()];
    for dtype in options.types() {
        let (whole, _) = kernel_of(product, dtype, 1, &default)?;
        for seed in 0..options.seeds {
            let mut samples = Samples {
                product,
                dtype,
                rows: options.rows.iter().copied().max().unwrap_or(0),
                seed,
                made: BTreeMap::new(),
            };
            let mut one_row = false;
            let mut cells = verdict.cells.iter_mut();
            for ((policy, stream), differs) in streams.iter().zip(&mut differs) {
                for (&rows, cell) in options.rows.iter().zip(&mut cells) {
                    step();
                    let (kernel, plan) = kernel_of(product, dtype, rows, stream)?;
                    let kept = plan.as_ref().is_none_or(|plan| plan.identical);
                    if let Some(plan) = plan {
                        cell.weight_passes = plan.weight_passes as usize;
                        cell.weight_bytes = plan.weight_bytes;
                        cell.function = function_of(&plan.kernel).unwrap_or_default().to_owned();
                        cell.kernel = plan.kernel;
                    }
                    if options.simulated && *differs {
                        continue;
                    }
                    let outputs = kernels::fewest_outputs(product, options.outputs, |part| {
                        Ok(kernel_of(part, dtype, 1, &default)?.0 == whole
                            && kernel_of(part, dtype, rows, stream)?.0 == kernel)
                    })?;
                    let work = outputs.saturating_mul(product.k).saturating_mul(rows);
                    if options.simulated && work > if kept { BEARABLE } else { BEARABLE_MATRIX } {
                        continue;
                    }
                    let sample = samples.of(outputs)?;
                    // `wide` has its own bits, even for one row.
                    let own = policy.kind() == PolicyKind::Wide;
                    let run = stream.scope(|| sample.run(0..rows))?;
                    expect(product, dtype, rows, &kernel, &run)?;
                    if own && !one_row {
                        one_row = true;
                        let row = verdict.wide.get_or_insert_default();
                        sample.one_row(row, stream, &default)?;
                    }
                    let mut differing = 0;
                    for row in 0..rows {
                        let alone = sample.alone(row, if own { stream } else { &default }, own)?;
                        if !own {
                            expect(product, dtype, 1, &whole, alone)?;
                            (verdict.alone, verdict.alone_function) =
                                (alone.kernel.clone(), alone.function.clone());
                        }
                        differing += unequal(&alone.bits, &run.bits[row * outputs..][..outputs]);
                    }
                    (cell.kernel, cell.function) = (run.kernel, run.function);
                    // MLX's matrix kernels split K into parts whose number depends on the outputs, so a subset of the
                    // outputs proves nothing.
                    *differs |= differing > 0;
                    if outputs == product.n || kept || differing > 0 {
                        cell.differing += differing;
                        cell.outputs += run.bits.len();
                    }
                }
            }
        }
    }
    for policy in &options.policies {
        let name = policy.to_string();
        let mut cells = verdict.cells.iter().filter(|cell| cell.policy == name);
        if cells.all(Cell::is_exact) {
            verdict.exact.push(name);
        }
    }
    Ok(verdict)
}

/// A block with more multiplications is too slow on the simulated device: this many take about half a minute.
const BEARABLE: usize = 8_000_000_000;

/// The same for MLX's matrix kernels, which are far slower there.
const BEARABLE_MATRIX: usize = 200_000_000;

/// The kernel of the whole product, and its plan if one is known.
fn kernel_of(
    product: &Product,
    dtype: Dtype,
    rows: usize,
    stream: &Stream,
) -> Result<(Option<String>, Option<Plan>)> {
    let plan = plan(product, dtype, rows, stream)?;
    Ok((plan.as_ref().map(|plan| plan.kernel.clone()), plan))
}

/// Fails unless the kernel that ran is the one of the whole product: otherwise the wrong kernel was examined.
fn expect(
    product: &Product,
    dtype: Dtype,
    rows: usize,
    kernel: &Option<String>,
    run: &Run,
) -> Result<()> {
    match kernel {
        Some(kernel) if *kernel != run.kernel => Err(Error::Kernel {
            what: format!("{product}, {dtype}, M = {rows}"),
            expected: kernel.clone(),
            found: run.kernel.clone(),
        }),
        _ => Ok(()),
    }
}

fn unequal(one: &[u32], other: &[u32]) -> usize {
    one.iter().zip(other).filter(|(a, b)| a != b).count()
}

/// A product's samples, by their number of outputs.
struct Samples<'a> {
    product: &'a Product,
    dtype: Dtype,
    rows: usize,
    seed: u64,
    made: BTreeMap<usize, Sample>,
}

impl Samples<'_> {
    fn of(&mut self, outputs: usize) -> Result<&mut Sample> {
        if !self.made.contains_key(&outputs) {
            let sample = Sample::new(self.product, self.dtype, self.rows, outputs, self.seed)?;
            self.made.insert(outputs, sample);
        }
        let missing = || Error::Invalid(format!("no sample of {outputs} outputs"));
        self.made.get_mut(&outputs).ok_or_else(missing)
    }
}

/// A matrix and rows of x.
struct Sample {
    matrix: QuantizedMatrix,
    x: Array,
    /// Rows alone, by row and whether they are computed under `wide`.
    alone: BTreeMap<(usize, bool), Run>,
}

impl Sample {
    fn new(
        product: &Product,
        dtype: Dtype,
        rows: usize,
        outputs: usize,
        seed: u64,
    ) -> Result<Self> {
        let mut noise = Noise::new(seed);
        Ok(Self {
            matrix: noise.matrix([outputs, product.k], product.quantization, dtype, 1.0)?,
            x: noise.array(&[rows, product.k], 1.0, dtype)?,
            alone: BTreeMap::new(),
        })
    }

    /// A row alone, computed once.
    fn alone(&mut self, row: usize, stream: &Stream, wide: bool) -> Result<&Run> {
        if !self.alone.contains_key(&(row, wide)) {
            let run = stream.scope(|| self.run(row..row + 1))?;
            self.alone.insert((row, wide), run);
        }
        let missing = || Error::Invalid(format!("row {row} was not computed"));
        self.alone.get(&(row, wide)).ok_or_else(missing)
    }

    /// Compares the first row under `wide` with itself under `default`.
    fn one_row(&mut self, found: &mut WideRow, wide: &Stream, default: &Stream) -> Result<()> {
        let stock = self.alone(0, default, false)?.bits.clone();
        let alone = self.alone(0, wide, true)?;
        (found.kernel, found.function) = (alone.kernel.clone(), alone.function.clone());
        found.outputs += stock.len();
        found.differing += unequal(&stock, &alone.bits);
        Ok(())
    }

    fn run(&self, rows: std::ops::Range<usize>) -> Result<Run> {
        let x = slice(&self.x, &[rows, 0..self.matrix.columns()])?;
        let product = quantized_matmul(&x, &self.matrix)?;
        let (bits, kernel) = kernels::of_product(|| values::bits(&product))?;
        let function = function_of(&kernel).unwrap_or_default().to_owned();
        Ok(Run {
            bits,
            kernel,
            function,
        })
    }
}
