//! One quantized product: rows together against rows alone.

use dispatch_plan::{Plan, function_of};
use mlx_overlay::{
    Array, Dtype, PolicyKind, QuantizedMatrix, RowPolicy, Stream, quantized_matmul, slice,
};

use super::{Cell, Layer, LayerVerdict, Options};
use crate::kernels::{self, plan};
use crate::product::Product;
use crate::setting;
use crate::values::{self, Noise};
use crate::{Error, Result};

/// What a product dispatched.
struct Run {
    bits: Vec<u32>,
    kernel: String,
    function: String,
}

pub(super) fn verdict(layer: &Layer, options: &Options) -> Result<LayerVerdict> {
    let product = &layer.product;
    let default = setting::stream(RowPolicy::DEFAULT)?;
    let mut verdict = LayerVerdict {
        layer: layer.clone(),
        alone: String::new(),
        alone_function: String::new(),
        alone_path: String::new(),
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
            path: String::new(),
            weight_passes: 0,
            weight_bytes: 0,
            outputs: 0,
            differing: 0,
        }));
    }
    let most = options.rows.iter().copied().max().unwrap_or(0);
    // The model's type last: its kernels are the ones that are reported.
    let mut types = vec![Dtype::F32];
    types.extend((options.dtype != Dtype::F32).then_some(options.dtype));
    for dtype in types {
        let outputs = outputs(product, options, dtype, &default, &streams)?;
        for seed in 0..options.seeds {
            let sample = Sample::new(product, dtype, most, outputs, seed)?;
            let mut alone = Vec::new();
            for row in 0..most {
                let run = default.scope(|| sample.run(row..row + 1))?;
                let path = verify(product, dtype, 1, &default, &run)?
                    .map(|plan| plan.path.kernel_name(plan.fast));
                (verdict.alone, verdict.alone_function) = (run.kernel, run.function);
                verdict.alone_path = path.unwrap_or_default();
                alone.extend(run.bits);
            }
            let mut cells = verdict.cells.iter_mut();
            for (policy, stream) in &streams {
                // `wide` has bits of its own, those of one row included.
                let alone = if policy.kind() == PolicyKind::Wide {
                    let row = |row| Ok::<_, Error>(sample.run(row..row + 1)?.bits);
                    let rows = stream.scope(|| (0..most).map(row).collect::<Result<Vec<_>>>())?;
                    &rows.concat()
                } else {
                    &alone
                };
                for (&rows, cell) in options.rows.iter().zip(&mut cells) {
                    let run = stream.scope(|| sample.run(0..rows))?;
                    if let Some(plan) = verify(product, dtype, rows, stream, &run)? {
                        cell.path = plan.path.kernel_name(plan.fast);
                        cell.weight_passes = plan.weight_passes as usize;
                        cell.weight_bytes = plan.weight_bytes;
                    }
                    let alone = &alone[..run.bits.len()];
                    cell.differing += alone.iter().zip(&run.bits).filter(|(a, b)| a != b).count();
                    cell.outputs += run.bits.len();
                    (cell.kernel, cell.function) = (run.kernel, run.function);
                }
            }
        }
    }
    for policy in &options.policies {
        let name = policy.to_string();
        let mut cells = verdict.cells.iter().filter(|cell| cell.policy == name);
        if cells.all(|cell| cell.differing == 0) {
            verdict.exact.push(name);
        }
    }
    Ok(verdict)
}

/// How many outputs to compute: few if they take the kernels of the whole product at every number of
/// rows, one row included; else all.
fn outputs(
    product: &Product,
    options: &Options,
    dtype: Dtype,
    default: &Stream,
    streams: &[(RowPolicy, Stream)],
) -> Result<usize> {
    let Some(few) = options.outputs.map(|n| reduced(product, n)) else {
        return Ok(product.n);
    };
    let part = Product {
        n: few,
        ..product.clone()
    };
    let blocks = streams
        .iter()
        .flat_map(|(_, stream)| options.rows.iter().map(move |&rows| (rows, stream)));
    for (rows, stream) in [(1, default)].into_iter().chain(blocks) {
        let kernel =
            |product| Ok::<_, Error>(plan(product, dtype, rows, stream)?.map(|plan| plan.kernel));
        if kernel(&part)? != kernel(product)? {
            return Ok(product.n);
        }
    }
    Ok(few)
}

/// As few outputs that are a multiple of 8 if all are, and none if none is: one-row kernels tell the
/// two apart.
fn reduced(product: &Product, outputs: usize) -> usize {
    let few = outputs.next_multiple_of(8);
    let few = few + product.n % 8;
    few.min(product.n)
}

/// A matrix, and rows of x.
struct Sample {
    matrix: QuantizedMatrix,
    x: Array,
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
        })
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

/// The kernel that ran must be the one that the whole product takes, or another was examined. Gives
/// the whole product's plan.
fn verify(
    product: &Product,
    dtype: Dtype,
    rows: usize,
    stream: &Stream,
    run: &Run,
) -> Result<Option<Plan>> {
    match plan(product, dtype, rows, stream)? {
        Some(plan) if plan.kernel != run.kernel => Err(Error::Kernel {
            what: format!("{product}, {dtype}, M = {rows}"),
            expected: plan.kernel,
            found: run.kernel.clone(),
        }),
        plan => Ok(plan),
    }
}
