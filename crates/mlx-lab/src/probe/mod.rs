//! Checks whether a row of a block has the bits that it has alone: product by product, policy by policy.

mod operation;
mod product;
mod text;

use std::collections::BTreeSet;

use mlx_overlay::{Dtype, PolicyKind, RowPolicy};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::model::Model;
use crate::saved::Layout;
use crate::{Error, Result, kernels, setting};

pub use crate::model::Layer;
pub use operation::{Operation, OperationCell, OperationVerdict};
pub(crate) use text::spans;
pub use text::{render, table};

/// The setup of a comparison.
#[derive(Debug, Clone)]
pub struct Options {
    /// Rows of the blocks.
    pub rows: Vec<usize>,
    /// Policies to try.
    pub policies: Vec<RowPolicy>,
    /// Type of x. Products are also compared in f32, where a difference cannot hide in rounding.
    pub dtype: Dtype,
    /// Different random numbers to try.
    pub seeds: u64,
    /// Compute only this many outputs of each product if they use the same kernel; all if `None`. Attention then has
    /// one key head.
    pub outputs: Option<usize>,
    /// Numbers of positions in attention's context.
    pub contexts: Vec<usize>,
    /// Whether the device is simulated. If so, a policy is abandoned at its first difference, and blocks that would
    /// take minutes are not compared.
    pub simulated: bool,
}

impl Options {
    /// Blocks of 2 to 9, 12, 13 and 16 rows in bf16, under every available policy: up to two tiles of the streamed
    /// kernels, full and not full. On a simulated device, only as many outputs as are needed to show a difference.
    ///
    /// # Errors
    /// MLX's.
    pub fn new() -> Result<Self> {
        let simulated = Machine::here()?.simulated;
        Ok(Self {
            rows: (2..=9).chain([12, 13, 16]).collect(),
            policies: setting::policies(),
            dtype: Dtype::Bf16,
            seeds: if simulated { 1 } else { 2 },
            outputs: simulated.then_some(32),
            contexts: if simulated {
                vec![40, 1030, 4100]
            } else {
                vec![512, 1030, 4100, 8200]
            },
            simulated,
        })
    }

    /// The types of x. The model's type comes last, because its kernels are the reported ones.
    fn types(&self) -> Vec<Dtype> {
        let mut types = vec![Dtype::F32];
        types.extend((self.dtype != Dtype::F32).then_some(self.dtype));
        types
    }
}

/// One product under one policy at one number of rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The policy.
    pub policy: String,
    /// Rows.
    pub rows: usize,
    /// The dispatched kernel, which is also that of the plan for the whole product. Empty if the library does not
    /// report it.
    pub kernel: String,
    pub function: String,
    /// How often it reads the weights.
    pub weight_passes: usize,
    /// Bytes of the weights that it reads.
    pub weight_bytes: u64,
    /// Outputs that were compared, over all seeds and types. 0 if none was: a simulated device stops at the first
    /// difference and skips blocks that would take minutes.
    pub outputs: usize,
    /// Outputs whose bits differ from those of the row alone.
    pub differing: usize,
}

impl Cell {
    fn is_exact(&self) -> bool {
        self.outputs > 0 && self.differing == 0
    }
}

/// One row under `wide`, which may change its bits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WideRow {
    /// The dispatched kernel. Empty if the library does not report it.
    pub kernel: String,
    pub function: String,
    /// Outputs that were compared with those of the same row under `default`, over all seeds and types.
    pub outputs: usize,
    /// Outputs with other bits.
    pub differing: usize,
}

/// The result for a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerVerdict {
    #[serde(flatten)]
    pub layer: Layer,
    /// The kernel of one row.
    pub alone: String,
    /// The function of that kernel.
    pub alone_function: String,
    /// One row under `wide`; `None` if that policy was not tried.
    #[serde(default)]
    pub wide: Option<WideRow>,
    /// Policies under which every row has its bits.
    pub exact: Vec<String>,
    /// All comparisons.
    pub cells: Vec<Cell>,
}

/// The result for a model, or for a list of products.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The file format.
    pub format: Layout<3>,
    /// The machine.
    pub machine: Machine,
    /// Type of x.
    pub dtype: String,
    /// Rows of the blocks.
    pub rows: Vec<usize>,
    /// The results by product.
    pub layers: Vec<LayerVerdict>,
    /// The other operations of the model: dense products, attention, norms, rotary positions.
    pub operations: Vec<OperationVerdict>,
    /// Policies under which all of these are exact, cheapest first.
    pub exact: Vec<String>,
    /// If no policy makes the whole block exact: the reasons, in the order of the model.
    pub obstacles: Vec<String>,
    /// The parts of the model that are known not to be multiplied.
    pub others: Vec<String>,
    /// The parts of the model that were not probed, with the reason.
    pub skipped: Vec<String>,
}

impl Report {
    /// The policy to use: of the exact ones, the one that reads the fewest bytes of weights.
    pub fn recommended(&self) -> Option<&str> {
        self.exact.first().map(String::as_str)
    }

    /// Whether a product was compared. If not, the result is not exact, whatever the norms are.
    pub fn has_products(&self) -> bool {
        let is_dense =
            |verdict: &OperationVerdict| matches!(verdict.operation, Operation::Dense { .. });
        !self.layers.is_empty() || self.operations.iter().any(is_dense)
    }

    /// Whether the whole block is exact under some policy. If something was not probed, it is not known to be.
    pub fn is_exact(&self) -> bool {
        self.is_exact_where_probed() && self.skipped.is_empty()
    }

    /// Whether something was probed, and everything that was probed is exact under some policy.
    pub fn is_exact_where_probed(&self) -> bool {
        !self.exact.is_empty()
    }

    /// The certificate of the probe for a policy, to be compared with what a server dispatches.
    ///
    /// # Errors
    /// [`Error::Invalid`] if not everything that was probed is exact under it.
    pub fn certificate(&self, policy: RowPolicy) -> Result<Certificate> {
        let name = policy.to_string();
        if !self.exact.contains(&name) {
            return Err(Error::Invalid(format!(
                "the products are not exact under {policy}, so there is nothing to certify"
            )));
        }
        // Under `wide`, one row uses the kernel for several rows.
        let wide = policy.kind() == PolicyKind::Wide;
        let of_layers = self.layers.iter().flat_map(|layer| {
            let cells = layer.cells.iter().filter(|cell| cell.policy == name);
            let of_wide = layer.wide.as_ref().map(|row| &row.kernel);
            let alone = if wide { of_wide } else { Some(&layer.alone) };
            cells.map(|cell| &cell.kernel).chain(alone)
        });
        let of_operations = self.operations.iter().flat_map(|operation| {
            let cells = operation.cells.iter().filter(|cell| cell.policy == name);
            cells.flat_map(|cell| &cell.kernels).chain(&operation.alone)
        });
        let kernels = of_layers
            .chain(of_operations)
            .filter(|name| !name.is_empty());
        Ok(Certificate {
            format: Layout,
            policy: name.clone(),
            rows: self.rows.iter().copied().max().unwrap_or(1),
            kernels: kernels.cloned().collect(),
            operations: !self.operations.is_empty(),
        })
    }
}

/// The kernels that a probe found to be exact under a policy.
///
/// Before a server relies on a probe, it records what a verify pass dispatches ([`mlx_overlay::record_kernels`]) and
/// calls [`Certificate::check`]: if the probe had other shapes, types or layouts than the server, it certified other
/// kernels. A kernel's name contains its function, type, bits, group size, and the rows of its tile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The file format.
    pub format: Layout<3>,
    /// The policy.
    pub policy: String,
    /// The most rows of a block that was probed.
    pub rows: usize,
    /// The kernels, by name.
    pub kernels: BTreeSet<String>,
    /// Whether dense products and attention were probed too. If not, nothing is known about them.
    pub operations: bool,
}

impl Certificate {
    /// Compares the kernels that a block of `rows` rows dispatched with those that were probed. Kernels that compute
    /// neither a product nor attention are ignored.
    ///
    /// # Errors
    /// [`Error::Uncertified`] names the kernels that were not probed; [`Error::Invalid`] for more rows than were
    /// probed.
    pub fn check<S: AsRef<str>>(
        &self,
        rows: usize,
        dispatched: impl IntoIterator<Item = S>,
    ) -> Result<()> {
        if rows > self.rows {
            return Err(Error::Invalid(format!(
                "policy {} was probed with blocks of up to {} rows, but this block has {rows}",
                self.policy, self.rows
            )));
        }
        let mut strangers: Vec<String> = Vec::new();
        for kernel in dispatched {
            let kernel = kernel.as_ref();
            let meant =
                kernels::decides(kernel) && (self.operations || !kernels::is_operation(kernel));
            if meant
                && !self.kernels.contains(kernel)
                && !strangers.iter().any(|name| name == kernel)
            {
                strangers.push(kernel.to_owned());
            }
        }
        if strangers.is_empty() {
            return Ok(());
        }
        Err(Error::Uncertified {
            policy: self.policy.clone(),
            probed: self.kernels.iter().cloned().collect(),
            strangers,
        })
    }
}

/// Probes products. `progress` is called with the numbers of compared blocks and of all blocks.
///
/// # Errors
/// MLX's; [`Error::Kernel`] if a product used another kernel than the plan for the whole product: the comparison
/// would certify the wrong kernel.
pub fn products(
    layers: &[Layer],
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report> {
    run(layers, &[], [&[], &[]], options, progress)
}

/// Probes a model: its products, and the operations between them.
///
/// # Errors
/// See [`products`].
pub fn model(
    model: &Model,
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report> {
    if options.contexts.is_empty() {
        return Err(Error::Invalid(
            "no positions in attention's context".to_owned(),
        ));
    }
    let mut skipped = model.skipped.clone();
    let operations = operations(model, options, &mut skipped)?;
    run(
        &model.layers,
        &operations,
        [&model.others, &skipped],
        options,
        progress,
    )
}

fn run(
    layers: &[Layer],
    operations: &[(Operation, usize)],
    [others, skipped]: [&[String]; 2],
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report> {
    check(options)?;
    let total =
        layers.len() * product::steps(options) + operations.len() * operation::steps(options);
    let mut done = 0;
    let mut step = || {
        progress(done, total);
        done += 1;
    };
    let mut products = Vec::new();
    for layer in layers {
        products.push(product::verdict(layer, options, &mut step)?);
    }
    let mut verdicts = Vec::new();
    for (operation, count) in operations {
        verdicts.push(operation::verdict(
            operation.clone(),
            *count,
            options,
            &mut step,
        )?);
    }
    let mut report = Report {
        format: Layout,
        machine: Machine::here()?,
        dtype: options.dtype.to_string(),
        rows: options.rows.clone(),
        layers: products,
        operations: verdicts,
        exact: Vec::new(),
        obstacles: Vec::new(),
        others: others.to_vec(),
        skipped: skipped.to_vec(),
    };
    conclude(&mut report, options)?;
    Ok(report)
}

/// The operations of a model. Those that no policy covers are skipped.
fn operations(
    model: &Model,
    options: &Options,
    skipped: &mut Vec<String>,
) -> Result<Vec<(Operation, usize)>> {
    let mut operations: Vec<(Operation, usize)> = Vec::new();
    if let Some(dims) = model.hidden {
        operations.push((Operation::RmsNorm { dims }, 1));
    }
    for shape in &model.attention {
        let rope = Operation::Rope {
            heads: shape.heads,
            dims: shape.head_dim,
        };
        if shape.head_dim.is_multiple_of(2) && operations.iter().all(|(other, _)| *other != rope) {
            operations.push((rope, shape.layers));
        }
        let at = |context| Operation::Attention {
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            dims: shape.head_dim,
            value_dims: shape.value_dim,
            sinks: shape.sinks,
            context,
        };
        let most = options.rows.iter().copied().max().unwrap_or(0);
        let mut contexts: Vec<usize> = options
            .contexts
            .iter()
            .map(|&context| context.max(most))
            .collect();
        if let Some(window) = shape.window {
            contexts
                .iter_mut()
                .for_each(|context| *context = window.min(*context));
            skipped.push(format!(
                "attention past the window of {window} positions of {} layers: a block sees an array mask there, which \
                 no policy covers",
                shape.layers
            ));
        }
        contexts.sort_unstable();
        contexts.dedup();
        contexts.retain(|&context| context >= most);
        let mut last = None;
        for context in contexts {
            // More positions with the same kernels add nothing.
            let new = match last {
                None => true,
                Some(last) => operation::changes(&at(context), options, last, context)?,
            };
            if !new {
                continue;
            }
            last = Some(context);
            // Within the window, layers with and without a window are the same.
            match operations
                .iter_mut()
                .find(|(other, _)| *other == at(context))
            {
                Some((_, layers)) => *layers += shape.layers,
                None => operations.push((at(context), shape.layers)),
            }
        }
    }
    operations.extend(model.dense.iter().map(|dense| {
        let operation = Operation::Dense {
            name: dense.name.clone(),
            n: dense.n,
            k: dense.k,
            bias: dense.bias,
        };
        (operation, dense.count)
    }));
    Ok(operations)
}

fn check(options: &Options) -> Result<()> {
    let complaint =
        if options.rows.is_empty() || options.rows.iter().any(|m| !(2..=MOST_ROWS).contains(m)) {
            "a block must have 2 to 4096 rows"
        } else if options.policies.is_empty() {
            "no policy to try"
        } else if options.seeds == 0 {
            "no seed to try"
        } else if options
            .contexts
            .iter()
            .any(|&context| context > MOST_POSITIONS)
        {
            "attention's context is limited to 1048576 positions"
        } else if !options.dtype.is_float() {
            "x must have the type f32, f16 or bf16"
        } else {
            return Ok(());
        };
    Err(Error::Invalid(complaint.to_owned()))
}

const MOST_ROWS: usize = 4096;
const MOST_POSITIONS: usize = 1 << 20;

/// Determines which policies are exact for everything that was compared, and why the others are not.
fn conclude(report: &mut Report, options: &Options) -> Result<()> {
    let mut exact: Vec<(u64, String)> = Vec::new();
    if !report.has_products() {
        return Ok(());
    }
    for &policy in &options.policies {
        let name = policy.to_string();
        let layers = report
            .layers
            .iter()
            .all(|layer| layer.exact.contains(&name));
        let operations = report
            .operations
            .iter()
            .all(|operation| operation.exact.contains(&name));
        if layers && operations {
            let mut bytes = cost(&report.layers, &name);
            for verdict in &report.operations {
                bytes += operation::dense_bytes(&verdict.operation, options, policy)?
                    * verdict.count as u64;
            }
            exact.push((bytes, name));
        }
    }
    // A stable sort: of two policies that read the same, the one requested first stays first.
    exact.sort_by_key(|&(bytes, _)| bytes);
    report.exact = exact.into_iter().map(|(_, name)| name).collect();
    if !report.exact.is_empty() {
        return Ok(());
    }
    for &policy in &options.policies {
        let layers = report
            .layers
            .iter()
            .filter_map(|layer| obstacle(layer, policy));
        let operations = report.operations.iter().filter_map(|verdict| {
            let name = policy.to_string();
            let (_, why) = verdict.reasons.iter().find(|(of, _)| *of == name)?;
            let from = verdict
                .differs_from(&name)
                .map(|rows| format!(" differs from M = {rows} on"));
            let from = from.unwrap_or_else(|| " is not known to be exact".to_owned());
            Some(format!("{}: `{policy}`{from}: {why}", verdict.operation))
        });
        let mut found = layers.chain(operations);
        let first = found.next();
        let more = found.count();
        report.obstacles.extend(first.map(|first| match more {
            0 => first,
            more => format!("{first} ({more} more under `{policy}`)"),
        }));
    }
    Ok(())
}

/// Bytes of weights that a policy reads, over all layers and numbers of rows.
fn cost(layers: &[LayerVerdict], policy: &str) -> u64 {
    let of = |layer: &LayerVerdict| -> u64 {
        let cells = layer.cells.iter().filter(|cell| cell.policy == policy);
        cells.map(|cell| cell.weight_bytes).sum::<u64>() * layer.layer.count as u64
    };
    layers.iter().map(of).sum()
}

/// The reason why a product is not exact under a policy.
fn obstacle(layer: &LayerVerdict, policy: RowPolicy) -> Option<String> {
    let name = policy.to_string();
    let cell = layer
        .cells
        .iter()
        .find(|cell| cell.policy == name && !cell.is_exact())?;
    let what = format!("{} ({} like it)", layer.layer.product, layer.layer.count);
    if cell.outputs == 0 {
        return Some(format!(
            "{what}: `{policy}` was not compared at M = {}: its kernel needs all outputs, which takes too long on a simulated device",
            cell.rows
        ));
    }
    let why = match (policy.kind(), policy.rows()) {
        (PolicyKind::Default, _) => "MLX's own choice",
        (_, Some(most)) if cell.rows > most as usize => {
            return Some(format!(
                "{what}: `{policy}` differs from M = {0} on, in {1}: a block has at most {most} rows under it: take \
                 `exact:{0}`, or `narrow:{0}`",
                cell.rows, cell.kernel
            ));
        }
        _ => "not caused by the choice of a kernel: please report it with this output",
    };
    Some(format!(
        "{what}: `{policy}` differs from M = {} on, in {}: {why}",
        cell.rows, cell.kernel
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_what_was_not_probed() {
        const ALONE: &str = "affine_qmv_fast_bfloat16_t_gs_64_b_4_batch_0";
        const BLOCK: &str = "affine_qmv_streamed_fast_bfloat16_t_gs_64_b_4_nv_8_r_4_s_8_batch_0";
        let mut certificate = Certificate {
            format: Layout,
            policy: "exact".to_owned(),
            rows: 8,
            kernels: [ALONE, BLOCK].map(str::to_owned).into(),
            operations: false,
        };
        certificate
            .check(8, [ALONE, BLOCK, "vn_copyfloat32", "gemv_float32"])
            .unwrap();
        let wider = BLOCK.replace("b_4", "b_8");
        let error = certificate.check(8, [ALONE, &wider, &wider]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "policy exact was probed with {ALONE}, {BLOCK}, but {wider} ran as well: they were not probed"
            )
        );
        assert!(
            certificate.check(9, [ALONE]).is_err(),
            "more rows than were probed"
        );
        certificate.operations = true;
        assert!(certificate.check(8, ["gemv_float32"]).is_err());
    }
}
