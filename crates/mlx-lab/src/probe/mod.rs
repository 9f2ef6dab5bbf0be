//! Whether a row of a block has the bits that it has alone: product by product, policy by policy.

mod operation;
mod product;
mod text;

use std::collections::BTreeSet;

use mlx_overlay::{Dtype, PolicyKind, RowPolicy};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::model::{Attention, Model};
use crate::saved::Layout;
use crate::{Error, Result, setting};

pub use crate::model::Layer;
pub use operation::{Operation, OperationVerdict};
pub use text::{render, table};

/// What is compared.
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
    /// Compute this many outputs of each product where fewer take the same kernel; all if `None`.
    pub outputs: Option<usize>,
    /// Positions that attention looks back on.
    pub context: usize,
}

impl Options {
    /// Blocks of 2 to 8 rows in bf16, under every policy that there is. On a simulated device only
    /// as many outputs as show a difference.
    ///
    /// # Errors
    /// MLX's.
    pub fn new() -> Result<Self> {
        let simulated = Machine::here()?.simulated;
        Ok(Self {
            rows: (2..=8).collect(),
            policies: setting::policies(),
            dtype: Dtype::Bf16,
            seeds: 2,
            outputs: simulated.then_some(32),
            context: if simulated { 40 } else { 512 },
        })
    }
}

/// One product under one policy at one number of rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The policy.
    pub policy: String,
    /// Rows.
    pub rows: usize,
    /// The kernel that was dispatched, as the plan of the whole product says too. Empty where the
    /// library does not tell.
    pub kernel: String,
    /// Its function.
    pub function: String,
    /// What the dispatch took, as counters name it.
    pub path: String,
    /// How often it reads the weights.
    pub weight_passes: usize,
    /// Bytes that it reads of them.
    pub weight_bytes: u64,
    /// Outputs that were compared, over all seeds and types.
    pub outputs: usize,
    /// Outputs whose bits are not those of the row alone.
    pub differing: usize,
}

/// What a layer came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerVerdict {
    /// The layer.
    #[serde(flatten)]
    pub layer: Layer,
    /// The kernel of one row.
    pub alone: String,
    /// Its function.
    pub alone_function: String,
    /// What the dispatch took for it.
    pub alone_path: String,
    /// Policies under which every row has its bits.
    pub exact: Vec<String>,
    /// All that was compared.
    pub cells: Vec<Cell>,
}

/// What a model, or a list of products, came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The layout, in a file.
    pub format: Layout,
    /// Where.
    pub machine: Machine,
    /// Type of x.
    pub dtype: String,
    /// Rows of the blocks.
    pub rows: Vec<usize>,
    /// Product by product.
    pub layers: Vec<LayerVerdict>,
    /// What no policy decides: attention, dense products, norms.
    pub operations: Vec<OperationVerdict>,
    /// Policies under which every product is exact, cheapest first.
    pub exact: Vec<String>,
    /// What stands in the way where no policy makes the whole block exact, in the order of the model.
    pub obstacles: Vec<String>,
    /// What the model has besides and was not probed, and why.
    pub skipped: Vec<String>,
}

impl Report {
    /// The policy to take: of those that are exact, the one that reads the fewest bytes of weights.
    pub fn recommended(&self) -> Option<&str> {
        self.exact.first().map(String::as_str)
    }

    /// Whether the whole block is exact under some policy, what no policy decides included. It is
    /// not known to be where something was not probed.
    pub fn is_exact(&self) -> bool {
        self.is_exact_where_probed() && self.skipped.is_empty()
    }

    /// Whether all that was probed is exact under some policy, whatever was not.
    pub fn is_exact_where_probed(&self) -> bool {
        !self.exact.is_empty() && self.obstacles.is_empty()
    }

    /// What the probe certifies for a policy, to be held against what a server dispatches.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the products are not exact under it.
    pub fn certificate(&self, policy: RowPolicy) -> Result<Certificate> {
        let name = policy.to_string();
        if !self.exact.contains(&name) {
            return Err(Error::Invalid(format!(
                "the products are not exact under {policy}, so there is nothing to certify"
            )));
        }
        let cells = self.layers.iter().flat_map(|layer| {
            let cells = layer.cells.iter().filter(|cell| cell.policy == name);
            // Under `wide` one row takes the path of several.
            let alone = (policy.kind() != PolicyKind::Wide).then(|| layer.alone_path.clone());
            cells.map(|cell| cell.path.clone()).chain(alone)
        });
        Ok(Certificate {
            format: Layout,
            policy: name.clone(),
            paths: cells.filter(|name| !name.is_empty()).collect(),
        })
    }
}

/// The kernels that a probe saw being exact under a policy.
///
/// A server that is about to rely on a probe counts what it dispatches
/// ([`crate::setting::Counters`]) and asks [`Certificate::check`]: a probe of other shapes, types
/// or layouts than those served has certified other kernels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The layout, in a file.
    pub format: Layout,
    /// The policy.
    pub policy: String,
    /// What products took, as [`mlx_overlay::dispatch_stats`] names it.
    pub paths: BTreeSet<String>,
}

impl Certificate {
    /// Holds what was dispatched against what was probed.
    ///
    /// # Errors
    /// [`Error::Uncertified`] names the paths that were not probed.
    pub fn check(&self, dispatched: &[(String, u64)]) -> Result<()> {
        let strangers: Vec<String> = dispatched
            .iter()
            .filter(|(name, count)| *count > 0 && !self.paths.contains(name))
            .map(|(name, count)| format!("{name} ({count} times)"))
            .collect();
        if strangers.is_empty() {
            return Ok(());
        }
        Err(Error::Uncertified {
            policy: self.policy.clone(),
            probed: self.paths.iter().cloned().collect(),
            strangers,
        })
    }
}

/// Probes products. `progress` is told how many of how many are done.
///
/// # Errors
/// MLX's; [`Error::Kernel`] if a product was dispatched to another kernel than the plan of the
/// whole product says: the comparison would certify the wrong thing.
pub fn products(
    layers: &[Layer],
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report> {
    check(options)?;
    let mut verdicts = Vec::new();
    for (done, layer) in layers.iter().enumerate() {
        progress(done, layers.len());
        verdicts.push(product::verdict(layer, options)?);
    }
    progress(layers.len(), layers.len());
    report(verdicts, Vec::new(), &[], options)
}

/// Probes a model: its products, and what no policy decides.
///
/// # Errors
/// Those of [`products`].
pub fn model(
    model: &Model,
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report> {
    check(options)?;
    let operations = operations(model, options);
    let total = model.layers.len() + operations.len();
    let mut layers = Vec::new();
    for layer in &model.layers {
        progress(layers.len(), total);
        layers.push(product::verdict(layer, options)?);
    }
    let mut others = Vec::new();
    for operation in operations {
        progress(layers.len() + others.len(), total);
        others.push(operation::verdict(operation, options)?);
    }
    progress(total, total);
    report(layers, others, &model.skipped, options)
}

fn operations(model: &Model, options: &Options) -> Vec<Operation> {
    let mut operations = Vec::new();
    if let Some(Attention {
        heads,
        kv_heads,
        head_dim,
        hidden,
        ..
    }) = model.attention
    {
        operations.push(Operation::RmsNorm { dims: hidden });
        operations.push(Operation::Rope {
            heads,
            dims: head_dim,
        });
        operations.push(Operation::Attention {
            heads,
            kv_heads,
            dims: head_dim,
            context: options.context,
        });
    }
    operations.extend(model.dense.iter().map(|dense| Operation::Dense {
        name: dense.name.clone(),
        n: dense.n,
        k: dense.k,
    }));
    operations
}

fn check(options: &Options) -> Result<()> {
    let complaint = if options.rows.is_empty() || options.rows.iter().any(|&m| m < 2) {
        "blocks have two rows or more"
    } else if options.policies.is_empty() {
        "no policy to try"
    } else if options.seeds == 0 {
        "no seed to try"
    } else if !options.dtype.is_float() {
        "x is of f32, f16 or bf16"
    } else {
        return Ok(());
    };
    Err(Error::Invalid(complaint.to_owned()))
}

fn report(
    layers: Vec<LayerVerdict>,
    operations: Vec<OperationVerdict>,
    skipped: &[String],
    options: &Options,
) -> Result<Report> {
    let mut exact: Vec<(u64, String)> = options
        .policies
        .iter()
        .map(ToString::to_string)
        .filter(|name| layers.iter().all(|layer| layer.exact.contains(name)))
        .map(|name| (cost(&layers, &name), name))
        .collect();
    // Stable: of two that read the same, the one that was asked for first stays first.
    exact.sort_by_key(|&(bytes, _)| bytes);
    let exact: Vec<String> = exact.into_iter().map(|(_, name)| name).collect();
    let mut obstacles = Vec::new();
    if exact.is_empty() {
        obstacles.extend(layers.iter().filter_map(obstacle));
    }
    obstacles.extend(operations.iter().filter_map(OperationVerdict::obstacle));
    Ok(Report {
        format: Layout,
        machine: Machine::here()?,
        dtype: options.dtype.to_string(),
        rows: options.rows.clone(),
        layers,
        operations,
        exact,
        obstacles,
        skipped: skipped.to_vec(),
    })
}

/// Bytes of weights that a policy reads, over all layers and numbers of rows.
fn cost(layers: &[LayerVerdict], policy: &str) -> u64 {
    let of = |layer: &LayerVerdict| -> u64 {
        let cells = layer.cells.iter().filter(|cell| cell.policy == policy);
        cells.map(|cell| cell.weight_bytes).sum::<u64>() * layer.layer.count as u64
    };
    layers.iter().map(of).sum()
}

/// What is at work where a product differs even from one-row kernels.
fn obstacle(layer: &LayerVerdict) -> Option<String> {
    let narrow = |cell: &&Cell| cell.policy.starts_with("narrow") && cell.differing > 0;
    let cell = layer.cells.iter().find(narrow)?;
    let policy: RowPolicy = cell.policy.parse().ok()?;
    let why = match policy.rows() {
        Some(most) if cell.rows > most as usize => format!(
            "a block has at most {most} rows under it: take `exact:{0}`, or `narrow:{0}`",
            cell.rows
        ),
        _ => "not the choice of a kernel: please report it with this output".to_owned(),
    };
    Some(format!(
        "{} ({} like it): `{policy}` differs from M = {} on, in {}: {why}",
        layer.layer.product, layer.layer.count, cell.rows, cell.kernel
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_what_was_not_probed() {
        let certificate = Certificate {
            format: Layout,
            policy: "exact".to_owned(),
            paths: ["qmv_fast", "qmv_streamed_fast"].map(str::to_owned).into(),
        };
        let served = [
            ("qmv_fast".to_owned(), 9),
            ("qmv_streamed_fast".to_owned(), 3),
        ];
        certificate.check(&served).unwrap();
        let error = certificate
            .check(&[("qmv".to_owned(), 2), ("matrix".to_owned(), 0)])
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "policy exact was probed with qmv_fast, qmv_streamed_fast, but qmv (2 times) ran \
             as well: the probe says nothing about them"
        );
    }
}
