//! The evaluated products.

use std::fmt;

use dispatch_plan::{
    Architecture, Dtype, Mode, Op, Plan, Policy, PolicyKind, Problem, Route, RoutePath,
};
use serde::{Serialize, Serializer};

/// All bits per weight of affine products.
pub const BITS: &[u32] = Mode::Affine.bits();
/// All group sizes of affine products.
pub const GROUPS: &[u32] = Mode::Affine.group_sizes();

/// The kind of K: which one-row kernel it takes, and how that handles the end of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `qmv_fast`.
    Fast,
    /// `qmv`, whole blocks of K.
    Whole,
    /// `qmv`, part of a block at the end.
    Tail,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Fast, Self::Whole, Self::Tail];

    /// A K of this kind, or `None` if there is none: at 2 bits a block of `qmv` is as long as one of `qmv_fast`, and at
    /// 6 and 8 bits as long as a group of 128.
    pub fn k(self, bits: u32, group: u32) -> Option<u32> {
        // For qmv_fast, K must be a multiple of the first (upstream's dispatch_qmv); qmv computes K in blocks of the
        // second.
        let (fast, block) = match bits {
            1 => (2048, 1024),
            2 => (512, 512),
            6 | 8 => (256, 128),
            _ => (512, 256),
        };
        match self {
            // Not a multiple of 512; a multiple of 256 is enough.
            Self::Fast => Some(if bits == 1 { fast } else { fast * 3 }),
            Self::Whole => (block < fast).then_some(fast + block),
            Self::Tail => (group < block).then_some(fast + group),
        }
    }

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "qmv_fast",
            Self::Whole => "qmv, whole blocks",
            Self::Tail => "qmv, tail",
        }
    }
}

/// The driver's records of a case, besides the count of differing outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Record {
    /// Nothing.
    Counts,
    /// The bits of every product.
    Bits,
    /// The bits, and the dispatches in full.
    Dispatches,
}

/// One product, at several numbers of rows. The driver's `Case` has the same fields, except `kind`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Case {
    #[serde(serialize_with = "by_name")]
    pub mode: Mode,
    /// Whether weights and x have a global scale: the product is then `qqmm`'s, which rounds x first.
    pub global_scale: bool,
    /// Bits per weight.
    pub bits: u32,
    /// Weights per group.
    pub group: u32,
    /// The type of x, scales, biases and the result.
    #[serde(serialize_with = "by_name")]
    pub dtype: Dtype,
    /// The kind of `k`.
    #[serde(skip)]
    pub kind: Kind,
    /// Values per row.
    pub k: u32,
    /// Outputs per row.
    pub n: u32,
    /// Matrices.
    pub batch: u32,
    /// The seed of the values.
    pub seed: u64,
    /// The first of the rows that are evaluated together.
    pub first: u32,
    /// Number of rows evaluated one by one.
    pub alone: u32,
    /// Numbers of rows evaluated in one product.
    pub rows: Vec<u32>,
    /// The records to make.
    pub record: Record,
    /// Values before x in its buffer, if several rows are evaluated.
    pub offset: u32,
    /// Whether a route selects the other arrangement of the streamed kernels.
    pub alternative: bool,
}

impl Case {
    /// An unbatched float32 case of 16 outputs, or `None` if there is no K of this kind.
    pub fn new(
        bits: u32,
        group: u32,
        kind: Kind,
        rows: impl IntoIterator<Item = u32>,
    ) -> Option<Self> {
        let rows: Vec<u32> = rows.into_iter().collect();
        Some(Self {
            mode: Mode::Affine,
            global_scale: false,
            bits,
            group,
            dtype: Dtype::Float32,
            kind,
            k: kind.k(bits, group)?,
            n: 16,
            batch: 1,
            seed: 1,
            alone: rows.iter().copied().max().unwrap_or(1),
            rows,
            record: Record::Counts,
            offset: 0,
            alternative: false,
            first: 0,
        })
    }

    /// The expected dispatch of `m` rows.
    ///
    /// # Errors
    /// The plan's errors.
    pub fn plan(
        &self,
        architecture: Architecture,
        policy: Policy,
        m: u32,
    ) -> Result<Plan, dispatch_plan::Error> {
        let problem = Problem {
            op: if self.global_scale {
                Op::QqMatmul
            } else {
                Op::QuantizedMatmul
            },
            mode: self.mode,
            global_scale: self.global_scale,
            dtype: self.dtype,
            bits: self.bits,
            group_size: self.group,
            batch: self.batch,
            m,
            ..Problem::new(architecture, self.n, self.k)
        };
        let routes = [Route {
            mode: None,
            bits: None,
            group_size: None,
            n: 0..=i32::MAX,
            k: 0..=i32::MAX,
            m: 0..=i32::MAX,
            path: RoutePath::StreamedAlt,
        }];
        let routes = if self.alternative { &routes[..] } else { &[] };
        dispatch_plan::plan(&problem, policy, routes)
    }

    /// This product in the other arrangement, if there is one.
    pub fn in_the_other_arrangement(&self) -> Option<Self> {
        (self.bits < 8 && self.batch == 1).then(|| Self {
            alternative: true,
            ..self.clone()
        })
    }

    /// The function whose kernels a block of `m` rows takes under `exact` or `wide`, determined without the plan.
    pub fn function(&self, policy: PolicyKind, m: u32) -> String {
        let is_wide = policy == PolicyKind::Wide;
        let function = match (self.kind == Kind::Fast, m) {
            _ if is_wide && !self.global_scale => "qmv_wide",
            (true, 1) => "qmv_fast",
            (false, 1) => "qmv",
            // qmv_wide has no global scale.
            (true, _) if is_wide => "qmv_fast",
            (false, _) if is_wide => "qmv",
            (true, _) => "qmv_streamed_fast",
            (false, _) => "qmv_streamed",
        };
        format!("{}_{function}", self.mode)
    }

    /// The type as in kernel names.
    pub fn type_name(&self) -> &'static str {
        match self.dtype {
            Dtype::Float32 => "float",
            Dtype::Float16 => "float16_t",
            Dtype::Bfloat16 => "bfloat16_t",
        }
    }
}

/// The format that the driver reads.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

fn by_name<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_k_take_the_kernels_they_are_named_for() {
        let architecture = "applegpu_g15d".parse().unwrap();
        let mut none = Vec::new();
        for &bits in BITS {
            for &group in GROUPS {
                for kind in Kind::ALL {
                    let Some(case) = Case::new(bits, group, kind, [1]) else {
                        none.push((bits, group, kind));
                        continue;
                    };
                    let plan = case.plan(architecture, Policy::EXACT, 1).unwrap();
                    let stem = format!("{}_float_gs_", case.function(PolicyKind::Exact, 1));
                    assert!(plan.kernel.starts_with(&stem), "{case}: {}", plan.kernel);
                }
            }
        }
        assert_eq!(
            none,
            [
                (2, 32, Kind::Whole),
                (2, 64, Kind::Whole),
                (2, 128, Kind::Whole),
                (6, 128, Kind::Tail),
                (8, 128, Kind::Tail),
            ]
        );
    }
}
