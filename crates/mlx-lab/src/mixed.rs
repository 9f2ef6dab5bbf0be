//! Measures what a speculative stream under an exact policy costs a batch under the default policy in the same
//! process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Instant;

use mlx_overlay::{
    Array, Dtype, Quantization, QuantizedMatrix, RowPolicy, Stream, add, quantized_matmul, slice,
};
use serde::{Deserialize, Serialize};

use crate::bench::Spread;
use crate::machine::Machine;
use crate::model::{Layer, Model};
use crate::product::Product;
use crate::saved::Layout;
use crate::setting::{self, Counters};
use crate::values::{self, Noise};
use crate::{Error, Result};

/// The setup.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Rows of the batch, one per sequence.
    pub batch: usize,
    /// Rows of the speculative stream's blocks.
    pub width: usize,
    /// The policy of the speculative stream.
    pub policy: RowPolicy,
    /// Steps of the batch; each is a pass over all products.
    pub steps: usize,
}

/// One half of the comparison: the batch alone, or with a neighbour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Half {
    /// Quantized products of the batch, by path.
    pub kernels: Vec<(String, u64)>,
    /// The bits of each row's last output, step by step. A step starts with the output of the step before it.
    pub outputs: Vec<Vec<u32>>,
    /// Seconds per step of the batch. `None` on a simulated device.
    pub seconds: Option<Spread>,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The file format.
    pub format: Layout<3>,
    /// The machine.
    pub machine: Machine,
    /// Rows of the batch.
    pub batch: usize,
    /// Rows of the neighbour's blocks.
    pub width: usize,
    /// The neighbour's policy.
    pub policy: String,
    /// The batch alone.
    pub alone: Half,
    /// The batch with the neighbour.
    pub beside: Half,
    /// Dispatches of quantized kernels by the neighbour.
    pub neighbour: Vec<(String, u64)>,
}

impl Report {
    /// Whether the batch used the same kernels equally often and computed the same bits, with and without the
    /// neighbour.
    pub fn is_free(&self) -> bool {
        self.alone.kernels == self.beside.kernels && self.alone.outputs == self.beside.outputs
    }

    /// The part by which a step of the batch took longer, if a real device measured it.
    pub fn tax(&self) -> Option<f64> {
        let (alone, beside) = (self.alone.seconds?, self.beside.seconds?);
        Some(beside.median / alone.median - 1.0)
    }
}

/// The quantized products of a pass, with random weights; products of the same shape share a matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Products {
    layers: Vec<Layer>,
    dtype: Dtype,
}

impl Products {
    /// The products of a model folder.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it has none.
    pub fn of(model: &Model) -> Result<Self> {
        if model.layers.is_empty() {
            return Err(Error::Invalid(
                "the model has no quantized products; `probe` shows the policies of dense ones"
                    .to_owned(),
            ));
        }
        Ok(Self {
            layers: model.layers.clone(),
            dtype: model.dtype.unwrap_or(Dtype::Bf16),
        })
    }

    /// The products of two small layers and a head.
    ///
    /// # Errors
    /// None: the format is valid.
    pub fn small() -> Result<Self> {
        let format = Quantization::affine(4, 64)?;
        let layer = |n, count| {
            let product = Product::new(n, 512, format)?;
            Ok(Layer { product, count })
        };
        Ok(Self {
            layers: [layer(512, 10), layer(128, 4), layer(256, 1)]
                .into_iter()
                .collect::<Result<_>>()?,
            dtype: Dtype::Bf16,
        })
    }

    /// A matrix for each shape, and the order of a pass: all shapes in turn, so that none is still in a cache at its
    /// next turn.
    fn weights(&self) -> Result<(Vec<QuantizedMatrix>, Vec<usize>)> {
        let mut noise = Noise::new(1);
        let matrices = self.layers.iter().map(|layer| {
            let product = &layer.product;
            noise.matrix(
                [product.n, product.k],
                product.quantization,
                self.dtype,
                1.0,
            )
        });
        let matrices = matrices.collect::<Result<_>>()?;
        let most = self
            .layers
            .iter()
            .map(|layer| layer.count)
            .max()
            .unwrap_or(0);
        let turns = (0..most).flat_map(|turn| {
            let layers = self.layers.iter().enumerate();
            layers.filter(move |(_, layer)| layer.count > turn)
        });
        Ok((matrices, turns.map(|(at, _)| at).collect()))
    }
}

/// Runs the batch alone, then alternating with the neighbour's verify passes.
///
/// # Errors
/// MLX's; [`mlx_overlay::Error::NoPolicies`]; [`Error::Invalid`] for an empty batch.
pub fn run(
    products: &Products,
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report> {
    if options.batch == 0 || options.steps == 0 || !(2..=8).contains(&options.width) {
        return Err(Error::Invalid(
            "the batch needs at least one sequence and one step, and blocks of 2 to 8 rows"
                .to_owned(),
        ));
    }
    let machine = Machine::here()?;
    let default = setting::stream(RowPolicy::DEFAULT)?;
    let exact = setting::stream(options.policy)?;
    let (matrices, order) = products.weights()?;
    let pass = |stream, rows, seed| Pass::new(&matrices, &order, products, stream, rows, seed);
    let total = 2 * options.steps;
    let mut half = |done: usize, before_step: &mut dyn FnMut() -> Result<()>| {
        let mut batch = pass(&default, options.batch, 0xba7c)?;
        let (mut kernels, mut outputs, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for step in 0..options.steps {
            progress(done + step, total);
            before_step()?;
            let before = Counters::now()?;
            let start = Instant::now();
            outputs.push(batch.step(|_| Ok(()))?);
            times.push(start.elapsed().as_secs_f64());
            count(&mut kernels, before.since()?);
        }
        let seconds = match machine.simulated {
            true => None,
            false => Spread::of(&times, 1),
        };
        Ok::<_, Error>(Half {
            kernels,
            outputs,
            seconds,
        })
    };
    let alone = half(0, &mut || Ok(()))?;
    let mut verify = pass(&exact, options.width, 0xb10c)?;
    let mut neighbour = Vec::new();
    let beside = half(options.steps, &mut || {
        let before = Counters::now()?;
        verify.step(|end| Ok(exact.check_operations([end])?))?;
        count(&mut neighbour, before.since()?);
        Ok(())
    })?;
    progress(total, total);
    Ok(Report {
        format: Layout,
        machine,
        batch: options.batch,
        width: options.width,
        policy: options.policy.to_string(),
        alone,
        beside,
        neighbour,
    })
}

/// Rows that go through all products repeatedly.
struct Pass<'a> {
    matrices: &'a [QuantizedMatrix],
    order: &'a [usize],
    stream: &'a Stream,
    /// The input for matrices with this many values per row; one number in it depends on the previous output.
    inputs: HashMap<usize, Array>,
    rows: usize,
    last: Option<Array>,
}

impl<'a> Pass<'a> {
    fn new(
        matrices: &'a [QuantizedMatrix],
        order: &'a [usize],
        products: &Products,
        stream: &'a Stream,
        rows: usize,
        seed: u64,
    ) -> Result<Self> {
        let mut noise = Noise::new(seed);
        let mut inputs = HashMap::new();
        for matrix in matrices {
            if let Entry::Vacant(entry) = inputs.entry(matrix.columns()) {
                let shape = [1, rows, matrix.columns()];
                entry.insert(stream.scope(|| noise.array(&shape, 1.0, products.dtype))?);
            }
        }
        Ok(Self {
            matrices,
            order,
            stream,
            inputs,
            rows,
            last: None,
        })
    }

    /// Goes through all products once; `look` gets the graph before the evaluation. Returns the bits of each row's
    /// last output.
    fn step(&mut self, look: impl FnOnce(&Array) -> Result<()>) -> Result<Vec<u32>> {
        self.stream.scope(|| {
            let mut last = self.last.take();
            for &at in self.order {
                let matrix = &self.matrices[at];
                let x = &self.inputs[&matrix.columns()];
                let y = match &last {
                    Some(last) => quantized_matmul(&add(x, last)?, matrix)?,
                    None => quantized_matmul(x, matrix)?,
                };
                last = Some(slice(&y, &[0..1, 0..self.rows, 0..1])?);
            }
            let Some(end) = last else {
                return Ok(Vec::new());
            };
            look(&end)?;
            // Without its graph, which would grow with each step.
            let end = values::settled(&end)?;
            let bits = values::bits(&end)?;
            self.last = Some(end);
            Ok(bits)
        })
    }
}

fn count(total: &mut Vec<(String, u64)>, counts: Vec<(String, u64)>) {
    for (kernel, count) in counts {
        match total.iter_mut().find(|(name, _)| *name == kernel) {
            Some((_, sum)) => *sum += count,
            None => total.push((kernel, count)),
        }
    }
}

/// The outcome as text.
pub fn render(report: &Report) -> String {
    let kernels = |counts: &[(String, u64)]| {
        let texts = counts.iter().map(|(name, count)| format!("{name} {count}"));
        texts.collect::<Vec<_>>().join(", ")
    };
    let caveat = report
        .machine
        .caveat()
        .map_or_else(String::new, |c| format!("{c}\n"));
    let verdict = if report.is_free() {
        "the batch took the same kernels equally often and computed the same bits: the counters show no cost of \
         the neighbour"
    } else {
        "the batch took other kernels or computed other bits with its neighbour"
    };
    let tax = match (report.tax(), report.alone.seconds, report.beside.seconds) {
        (Some(tax), Some(alone), Some(beside)) => format!(
            "a step of the batch took {:.3} ms alone ({:.3} to {:.3}), {:.3} ms next to it ({:.3} to \
             {:.3}): {:+.1}%\n",
            alone.median * 1e3,
            alone.low * 1e3,
            alone.high * 1e3,
            beside.median * 1e3,
            beside.low * 1e3,
            beside.high * 1e3,
            tax * 100.0
        ),
        _ => String::new(),
    };
    format!(
        "{}\n{caveat}\nbatch of {} under default, alone:      {}\nthe same next to its neighbour:      \
         {}\nneighbour, blocks of {} under {}: {}\n\n{tax}verdict: {verdict}\n",
        report.machine.line(),
        report.batch,
        kernels(&report.alone.kernels),
        kernels(&report.beside.kernels),
        report.width,
        report.policy,
        kernels(&report.neighbour)
    )
}
