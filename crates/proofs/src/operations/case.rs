//! The operations whose rows are compared, in the driver's format.

use std::fmt;

use dispatch_plan::Dtype;
use metal_sim::{Contraction, Device, Reduction};
use mlx_terms::Architecture;
use serde::{Deserialize, Serialize, Serializer};

/// One operation, evaluated in blocks of several numbers of rows and row by row. The driver's `Case` has the same
/// fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Operation {
    /// The operation and its sizes.
    #[serde(flatten)]
    pub shape: Shape,
    /// The type of operands and result.
    #[serde(serialize_with = "by_name")]
    pub dtype: Dtype,
    /// The seed of the values.
    pub seed: u64,
    /// Sequences.
    pub batch: u32,
    /// Numbers of rows; a block is evaluated for each.
    pub rows: Vec<u32>,
    /// Policies under which blocks are evaluated, as text.
    pub policies: Vec<String>,
    /// Whether bits are compared. If not, dispatches are recorded on a device whose kernels do nothing.
    pub run: bool,
    /// Whether dispatches are recorded although kernels run, and errors of blocks are computed.
    // Omitted unless set: the text is the key under which results are stored.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub record: bool,
}

/// An operation and its sizes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Shape {
    /// `scaled_dot_product_attention`.
    Attention {
        /// Heads of the queries.
        heads: u32,
        /// Heads of keys and values.
        kv_heads: u32,
        /// Dimensions of a query and key.
        head_dim: u32,
        /// Dimensions of a value.
        value_dim: u32,
        /// Keys that the last position sees.
        keys: u32,
        /// The keys that each row sees.
        mask: Mask,
        /// Whether each head has a sink.
        sinks: bool,
        /// The outer axis of q in memory: `heads` or `positions`.
        layout: &'static str,
    },
    /// `matmul`.
    Matmul(Product),
    /// `addmm`.
    Addmm {
        #[serde(flatten)]
        product: Product,
        /// Factors of the product and of the summand, as text: the driver reads numbers.
        #[serde(serialize_with = "number")]
        alpha: &'static str,
        /// See `alpha`.
        #[serde(serialize_with = "number")]
        beta: &'static str,
        /// The summand: a `vector` of n, a `row` of (1, n) or a `matrix` with a row for each row.
        bias: &'static str,
    },
    /// `gather_mm`, sorted in a block.
    GatherMm(Experts),
    /// `gather_qmm` with affine weights of 4 bits in groups of 64, sorted in a block.
    GatherQmm(Experts),
    /// `quantized_matmul` with weights (k, n) of 4 bits in groups of 64.
    QmmN {
        /// Outputs per row.
        n: u32,
        /// Values per row.
        k: u32,
    },
    /// `fast::gated_delta_update`: rows and the state they leave.
    GatedDelta {
        /// Heads of the values.
        heads: u32,
        /// Heads of queries and keys.
        kv_heads: u32,
        /// Dimensions of a query and key.
        head_dim: u32,
        /// Dimensions of a value.
        value_dim: u32,
    },
}

/// The keys that a row of attention sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mask {
    /// Keys up to the row's own position.
    Causal,
    /// All keys.
    None,
    /// Those selected by a Boolean array.
    Bool,
    /// All, with an array of numbers added to the scores.
    Additive,
}

/// A dense product: x of (batch, rows, k) times n outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Product {
    /// Outputs per row.
    pub n: u32,
    /// Values per row.
    pub k: u32,
    /// `nt`: weights (n, k), transposed; `nn`: weights (k, n); `strided`: like nn, with a gap after each row of x.
    pub form: &'static str,
    /// `matrix`: one for all; `batched`: one per sequence; `folded`: one per sequence for all heads.
    pub weights: &'static str,
    /// Number of heads, if they share weights.
    pub heads: u32,
}

/// A layer of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Experts {
    /// Outputs per row.
    pub n: u32,
    /// Values per row.
    pub k: u32,
    /// Matrices.
    pub experts: u32,
    /// Matrices that a token picks.
    pub picks: u32,
    /// Rows that are multiplied by each pick.
    pub rows_a_pick: u32,
}

/// The format that the driver reads.
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
    pub architecture: Architecture,
    /// How a product followed by a sum is contracted.
    pub contraction: Contraction,
    /// The order of `simd_sum`.
    pub reduction: Reduction,
    /// Whether every access is guarded, and unordered dispatches are shuffled with this seed.
    pub attack: Option<u64>,
    /// Whether kernels run.
    pub run: bool,
}

impl Setting {
    /// A device with this architecture and the default settings otherwise.
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

/// The result of an operation.
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
    /// Largest error compared with float64, if the driver computes it: absolute for attention, relative to the sum of
    /// magnitudes for products.
    pub error: Option<f64>,
    /// The dispatches of each row, if recorded.
    pub rows: Vec<Vec<metal_sim::trace::Dispatch>>,
}

/// Rows evaluated together.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    pub policy: String,
    /// Rows.
    pub m: u32,
    /// Dispatches by kernel.
    pub kernels: std::collections::BTreeMap<String, u64>,
    /// Outputs compared.
    pub outputs: u64,
    /// Outputs whose bits differ from those of the row alone.
    pub differing: u64,
    /// See [`RowsAlone::error`], if recorded.
    #[serde(default)]
    pub error: Option<f64>,
    /// The dispatches in full, if recorded.
    pub dispatches: Vec<metal_sim::trace::Dispatch>,
}
