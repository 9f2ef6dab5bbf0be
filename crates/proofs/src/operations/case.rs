//! The operations whose rows are compared, as the driver reads them.

use std::fmt;

use dispatch_plan::Dtype;
use metal_sim::{Contraction, Device, Reduction};
use mlx_terms::Architecture;
use serde::{Deserialize, Serialize, Serializer};

/// One operation, as blocks of several numbers of rows and row by row. The driver's `Case` has the
/// same fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Operation {
    /// What it computes with.
    #[serde(flatten)]
    pub shape: Shape,
    /// The type of operands and result.
    #[serde(serialize_with = "by_name")]
    pub dtype: Dtype,
    /// Of the values.
    pub seed: u64,
    /// Sequences.
    pub batch: u32,
    /// Numbers of rows; of each a block is evaluated.
    pub rows: Vec<u32>,
    /// Policies under which blocks are evaluated, as their text.
    pub policies: Vec<String>,
    /// Whether bits are compared. If not, dispatches are recorded, on a device whose kernels do
    /// nothing.
    pub run: bool,
    /// Whether dispatches are recorded although kernels run, and errors of blocks computed.
    // Left out unless set: the text is the key under which results are kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub record: bool,
}

/// What an operation computes with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Shape {
    /// `scaled_dot_product_attention`.
    Attention {
        /// Heads of the queries.
        heads: u32,
        /// Heads of keys and values.
        kv_heads: u32,
        /// Numbers a query and key.
        head_dim: u32,
        /// Numbers a value.
        value_dim: u32,
        /// Keys that the last position sees.
        keys: u32,
        /// What each row sees.
        mask: Mask,
        /// Whether each head has a sink.
        sinks: bool,
        /// Which axis of q is the outer one in memory: `heads` or `positions`.
        layout: &'static str,
    },
    /// `matmul`.
    Matmul(Product),
    /// `addmm`.
    Addmm {
        /// The product.
        #[serde(flatten)]
        product: Product,
        /// Factors of the product and of what is added, as text: the driver reads numbers.
        #[serde(serialize_with = "number")]
        alpha: &'static str,
        /// See `alpha`.
        #[serde(serialize_with = "number")]
        beta: &'static str,
        /// What is added: a `vector` of n, a `row` of (1, n) or a `matrix` of a row for each row.
        bias: &'static str,
    },
    /// `gather_mm`, sorted in a block.
    GatherMm(Experts),
    /// `gather_qmm` with affine weights of 4 bits in groups of 64, sorted in a block.
    GatherQmm(Experts),
    /// `quantized_matmul` with weights (k, n) of 4 bits in groups of 64.
    QmmN {
        /// Outputs a row.
        n: u32,
        /// Values a row.
        k: u32,
    },
    /// `fast::gated_delta_update`: rows and the state they leave.
    GatedDelta {
        /// Heads of the values.
        heads: u32,
        /// Heads of queries and keys.
        kv_heads: u32,
        /// Numbers a query and key.
        head_dim: u32,
        /// Numbers a value.
        value_dim: u32,
    },
}

/// Which keys a row of attention sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mask {
    /// Those up to its own position.
    Causal,
    /// All.
    None,
    /// Those that an array of truth values names.
    Bool,
    /// All, with an array of numbers added to the scores.
    Additive,
}

/// A dense product: x of (batch, rows, k) times n outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Product {
    /// Outputs a row.
    pub n: u32,
    /// Values a row.
    pub k: u32,
    /// `nt`: weights (n, k), transposed; `nn`: weights (k, n); `strided`: as nn, with rows of x that
    /// have a gap after them.
    pub form: &'static str,
    /// `matrix`: one for all; `batched`: one a sequence; `folded`: one a sequence for all heads.
    pub weights: &'static str,
    /// Heads, where they share weights.
    pub heads: u32,
}

/// A layer of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Experts {
    /// Outputs a row.
    pub n: u32,
    /// Values a row.
    pub k: u32,
    /// Matrices.
    pub experts: u32,
    /// Of them, how many a token picks.
    pub picks: u32,
    /// Rows that meet each pick.
    pub rows_a_pick: u32,
}

/// As the driver reads it.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

fn by_name<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn number<S: Serializer>(text: &&'static str, serializer: S) -> Result<S::Ok, S::Error> {
    let number: f64 = text.parse().map_err(serde::ser::Error::custom)?;
    serializer.serialize_f64(number)
}

/// The device that evaluates an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The GPU.
    pub architecture: Architecture,
    /// What becomes of a product and a sum.
    pub contraction: Contraction,
    /// The order of `simd_sum`.
    pub reduction: Reduction,
    /// Whether every access is guarded, and unordered dispatches are shuffled with this seed.
    pub attack: Option<u64>,
    /// Whether kernels run.
    pub run: bool,
}

impl Setting {
    /// A device of that architecture, whose other settings are the usual ones.
    pub fn new(architecture: Architecture) -> Self {
        Self {
            architecture,
            contraction: Contraction::Fused,
            reduction: Reduction::Butterfly,
            attack: None,
            run: true,
        }
    }

    /// The simulated device.
    pub fn device(self) -> Device {
        let device = Device::new()
            .architecture(self.architecture)
            .contraction(self.contraction)
            .reduction(self.reduction)
            .host_threads(1)
            .run(self.run);
        match self.attack {
            Some(seed) => device.guard(true).shuffle(seed),
            None => device,
        }
    }
}

/// What an operation came to.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationAnswer {
    /// The rows one by one.
    pub alone: RowsAlone,
    /// The blocks, for each policy and number of rows.
    pub blocks: Vec<Block>,
}

/// Rows evaluated one by one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowsAlone {
    /// Dispatches by kernel.
    pub kernels: std::collections::BTreeMap<String, u64>,
    /// Largest error against float64, where the driver computes it: of attention absolute, of
    /// products as a part of the sum of magnitudes.
    pub error: Option<f64>,
    /// The dispatches of each row, where recorded.
    pub rows: Vec<Vec<metal_sim::trace::Dispatch>>,
}

/// Rows evaluated together.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The policy.
    pub policy: String,
    /// Rows.
    pub m: u32,
    /// Dispatches by kernel.
    pub kernels: std::collections::BTreeMap<String, u64>,
    /// Outputs compared.
    pub outputs: u64,
    /// Outputs whose bits are not those of the row alone.
    pub differing: u64,
    /// As for [`RowsAlone`], if recorded.
    #[serde(default)]
    pub error: Option<f64>,
    /// The dispatches in full, where recorded.
    pub dispatches: Vec<metal_sim::trace::Dispatch>,
}
