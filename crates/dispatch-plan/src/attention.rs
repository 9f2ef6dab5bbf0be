//! How a block of attention is computed: the groups of `backend/metal/attention_plan.cpp`, and MLX's own choice.

use mlx_terms::{Architecture, Policy, PolicyKind, SizeClass, named};

use crate::decide::plan_attention;
use crate::{Dtype, Error, kernel};

named! {
    /// How rows of attention are computed.
    "way" Way {
        /// Two products and a softmax.
        Unfused => "unfused",
        /// `sdpa_vector`.
        OnePass => "one-pass",
        /// `sdpa_vector_2pass_1` and `_2`.
        TwoPass => "two-pass",
        /// `sdpa_vector_2pass_1_gqa` and `sdpa_vector_2pass_2`, for large groups of heads.
        TwoPassShared => "two-pass-shared",
        /// A matrix kernel for more than 8 rows.
        Matrix => "matrix",
    }
}

/// `mlx_row_attention`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawAttention {
    pub(crate) causal: i32,
    pub(crate) mask: i32,
    pub(crate) sinks: i32,
    pub(crate) size_class: i32,
    pub(crate) threads: i32,
    pub(crate) blocks: i32,
}

/// How a row of attention is computed alone, and where its group ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttentionRow {
    pub(crate) keys: u32,
    pub(crate) way: Way,
    pub(crate) blocks: u32,
    pub(crate) end: u32,
}

/// A block of attention: q of (batch, heads, rows, `head_dim`) over `keys` keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    pub architecture: Architecture,
    /// The type of q, k, v and the result.
    pub dtype: Dtype,
    /// Heads of the queries.
    pub heads: u32,
    /// Heads of keys and values.
    pub kv_heads: u32,
    /// Dimensions of a query and key.
    pub head_dim: u32,
    /// Dimensions of a value.
    pub value_dim: u32,
    /// Keys that the last row sees.
    pub keys: u32,
    /// Positions of q.
    pub rows: u32,
    /// Whether each row sees only the keys up to its own position.
    pub causal: bool,
    /// Whether there is an array mask.
    pub mask: bool,
    /// Whether there are sinks.
    pub sinks: bool,
}

/// Adjacent rows that share their dispatches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The first row.
    pub first: u32,
    /// Number of rows.
    pub rows: u32,
    /// Keys that the last of them sees.
    pub keys: u32,
    pub way: Way,
    /// Blocks into which two passes split the keys; else 0.
    pub blocks: u32,
    /// The kernel that reads the keys, without the suffixes of its function constants; `None` if they are unfused or a
    /// matrix kernel computes them.
    pub kernel: Option<String>,
    /// Dispatches of attention kernels; 0 if MLX's graph of other operations computes them.
    pub dispatches: u32,
}

/// How a block is computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttentionPlan {
    /// The groups, in the order of rows.
    pub groups: Vec<Group>,
    /// Whether every row has the same bits as alone.
    pub identical: bool,
}

/// How a block of attention is computed under a policy.
///
/// # Errors
/// [`Error::Invalid`] for a block that attention does not accept, [`Error::Unavailable`] in a build without a C++
/// compiler.
pub fn attention(problem: &Attention, policy: Policy) -> Result<AttentionPlan, Error> {
    problem.check()?;
    let prompt = policy.rows().is_some_and(|most| problem.rows > most);
    let kept = policy.kind() != PolicyKind::Default && !prompt;
    // Each row alone, as the kind `narrow` computes it.
    let alone = problem.grouped(PolicyKind::Narrow)?;
    if kept && problem.rows > 1 {
        return Ok(AttentionPlan {
            groups: problem.grouped(policy.kind())?,
            identical: true,
        });
    }
    let block = problem.upstream()?;
    let identical = alone
        .iter()
        .all(|row| (row.way, row.blocks) == (block.way, block.blocks))
        && (problem.rows == 1 || !matches!(block.way, Way::Unfused | Way::Matrix));
    Ok(AttentionPlan {
        groups: vec![block],
        identical: identical || problem.rows == 1,
    })
}

impl Attention {
    fn check(&self) -> Result<(), Error> {
        let invalid = |text: String| Err(Error::Invalid(text));
        if [
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.value_dim,
            self.keys,
            self.rows,
        ]
        .contains(&0)
        {
            return invalid("heads, dimensions, keys and rows must be 1 or more".to_owned());
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return invalid(format!(
                "the heads of the queries must be a multiple of those of the keys, found {} and {}",
                self.heads, self.kv_heads
            ));
        }
        if self.causal && self.rows > self.keys {
            return invalid(format!(
                "a causal block must not have more rows than keys, found {} and {}",
                self.rows, self.keys
            ));
        }
        Ok(())
    }

    fn grouped(&self, kind: PolicyKind) -> Result<Vec<Group>, Error> {
        let unfused: Vec<u8> = (0..self.rows)
            .map(|row| self.unfused_alone(self.keys_of(row)).into())
            .collect();
        let rows = plan_attention(self, &self.call(), kind, &unfused)?;
        let mut groups = Vec::new();
        let mut first = 0;
        while let Some(row) = rows.get(first as usize) {
            let Some(last) = rows.get(row.end.saturating_sub(1) as usize) else {
                break;
            };
            let count = row.end - first;
            groups.push(self.group(first, count, last.keys, row.way, row.blocks, kind));
            first = row.end;
        }
        Ok(groups)
    }

    fn group(
        &self,
        first: u32,
        rows: u32,
        keys: u32,
        way: Way,
        blocks: u32,
        kind: PolicyKind,
    ) -> Group {
        let dims = format!(
            "{}_{}_{}",
            kernel::type_name(self.dtype),
            self.head_dim,
            self.value_dim
        );
        let gqa = self.heads / self.kv_heads;
        let kernel = match way {
            Way::Unfused | Way::Matrix => None,
            Way::OnePass => Some(format!("sdpa_vector_{dims}")),
            Way::TwoPass => Some(format!("sdpa_vector_2pass_1_{dims}")),
            // A single row takes MLX's own kernel.
            Way::TwoPassShared if rows == 1 || kind != PolicyKind::Exact => {
                Some(format!("sdpa_vector_2pass_1_gqa_{gqa}_{dims}"))
            }
            Way::TwoPassShared => Some(format!("sdpa_vector_2pass_1_gqa_rows_{gqa}_{dims}")),
        };
        Group {
            first,
            rows,
            keys,
            way,
            blocks,
            kernel,
            dispatches: match way {
                Way::Unfused => 0,
                Way::OnePass | Way::Matrix => 1,
                Way::TwoPass | Way::TwoPassShared => 2,
            },
        }
    }

    fn keys_of(&self, row: u32) -> u32 {
        if self.causal {
            self.keys - (self.rows - 1 - row)
        } else {
            self.keys
        }
    }

    fn call(&self) -> RawAttention {
        RawAttention {
            causal: self.causal.into(),
            mask: self.mask.into(),
            sinks: self.sinks.into(),
            size_class: i32::from(
                self.architecture
                    .class()
                    .name()
                    .as_bytes()
                    .first()
                    .copied()
                    .unwrap_or(0),
            ),
            threads: 1024,
            blocks: 0,
        }
    }

    /// `use_fallback` of `scaled_dot_product_attention.cpp` for a single row.
    fn unfused_alone(&self, keys: u32) -> bool {
        let gqa = self.heads / self.kv_heads;
        !self.has_vector_kernel()
            || gqa > 32
            || (self.head_dim == 512 && (gqa != 8 || self.mask || keys < 1024))
            || (self.head_dim == 192 && self.value_dim == 192)
    }

    fn has_vector_kernel(&self) -> bool {
        match (self.head_dim, self.value_dim) {
            (64 | 96 | 128 | 192 | 256 | 512, value) if value == self.head_dim => true,
            dims => matches!(dims, (192, 128) | (96, 64)),
        }
    }

    /// The kernel that MLX takes for the whole block.
    fn upstream(&self) -> Result<Group, Error> {
        let whole =
            |way, blocks| self.group(0, self.rows, self.keys, way, blocks, PolicyKind::Default);
        if self.rows == 1 {
            let mut groups = self.grouped(PolicyKind::Narrow)?;
            return groups
                .pop()
                .ok_or_else(|| Error::Invalid("no row".to_owned()));
        }
        let gqa = self.heads / self.kv_heads;
        if self.rows > 8 {
            let matrix = matches!(
                (self.head_dim, self.value_dim),
                (64, 64) | (72, 72) | (80, 80) | (96, 96) | (128, 128) | (96, 64)
            );
            return Ok(whole(if matrix { Way::Matrix } else { Way::Unfused }, 0));
        }
        let large = matches!(self.architecture.class(), SizeClass::Max | SizeClass::Ultra);
        if self.unfused_alone(self.keys)
            || self.rows * gqa > 32
            || self.head_dim == 512
            || self.rows > self.keys
        {
            return Ok(whole(Way::Unfused, 0));
        }
        if !((large && self.keys >= 1024) || (gqa > 1 && self.keys >= 4096)) {
            return Ok(whole(Way::OnePass, 0));
        }
        // The block's rows count as heads when the number of blocks is chosen.
        let counted = Self {
            heads: gqa * self.rows,
            kv_heads: 1,
            rows: 1,
            causal: false,
            // Without a mask, a group of heads with its own kernel would be found.
            mask: true,
            ..*self
        };
        let rows = plan_attention(&counted, &counted.call(), PolicyKind::Narrow, &[0])?;
        let blocks = rows.first().map_or(0, |row| row.blocks);
        Ok(whole(Way::TwoPass, blocks))
    }
}
