//! Policies (which rows keep their bits), the operations they apply to, and the paths that compute them. `named!`
//! provides `FromStr`.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::named;

named! {
    /// The promise of a [`Policy`] for the rows of a block.
    ///
    /// A row *alone* is one position of one sequence with the keys that it sees, computed under `default`.
    ///
    /// | kind | rows of a block | weights read |
    /// |---|---|---|
    /// | `Default` | as MLX computes them | as MLX does |
    /// | `Exact` | the bits of the row alone | once for 8 rows |
    /// | `Narrow` | the bits of the row alone | once per row |
    /// | `Wide` | the same bits for any number of rows, including one: those of `qmv_wide` | once for 5 rows |
    ///
    /// Under `Wide`, products that `qmv_wide` cannot compute follow `Narrow`.
    #[non_exhaustive]
    "policy" PolicyKind {
        /// MLX's own choice.
        Default => "default",
        /// Order-preserving kernels for several rows.
        Exact => "exact",
        /// MLX's one-row kernels for each row.
        Narrow => "narrow",
        /// MLX's `qmv_wide` for any number of rows.
        Wide => "wide",
    }
}

/// Which rows keep their bits: a kind, and the maximum number of rows of a block. More rows are a
/// prompt, which every kind computes like MLX. A gather counts picks; its blocks are
/// [`Policy::PICKS_PER_ROW`] times as large.
///
/// The text of a policy is the kind's name, with `:R` for blocks of up to R rows or `:all` for
/// blocks without limit: `exact`, `exact:64`, `narrow:all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Policy {
    kind: PolicyKind,
    rows: Option<NonZeroU32>,
}

impl Policy {
    /// The default for the maximum number of rows of a block.
    pub const BLOCK_ROWS: u32 = 16;
    /// The number of picks of a gather that count as one row.
    pub const PICKS_PER_ROW: u32 = 32;
    /// The largest limit for the rows of a block.
    pub const MOST_ROWS: u32 = i32::MAX as u32;

    /// MLX's own choice.
    pub const DEFAULT: Self = Self::new(PolicyKind::Default);
    /// [`PolicyKind::Exact`] for blocks of [`Self::BLOCK_ROWS`].
    pub const EXACT: Self = Self::new(PolicyKind::Exact);
    /// [`PolicyKind::Narrow`] for blocks of [`Self::BLOCK_ROWS`].
    pub const NARROW: Self = Self::new(PolicyKind::Narrow);
    /// [`PolicyKind::Wide`] for blocks of [`Self::BLOCK_ROWS`].
    pub const WIDE: Self = Self::new(PolicyKind::Wide);
    /// One of each kind, with blocks of [`Self::BLOCK_ROWS`].
    pub const KINDS: &'static [Self] = &[Self::DEFAULT, Self::EXACT, Self::NARROW, Self::WIDE];

    /// A kind for blocks of [`Self::BLOCK_ROWS`].
    #[must_use]
    pub const fn new(kind: PolicyKind) -> Self {
        Self {
            kind,
            rows: NonZeroU32::new(Self::BLOCK_ROWS),
        }
    }

    /// This kind, for blocks without limit. `default` has no blocks and stays unchanged.
    #[must_use]
    pub const fn all(self) -> Self {
        match self.kind {
            PolicyKind::Default => self,
            kind => Self { kind, rows: None },
        }
    }

    /// This kind, for blocks of `rows` rows. `default` has no blocks and stays unchanged.
    ///
    /// # Errors
    /// [`PolicyError`] if `rows` is 0 or more than [`Self::MOST_ROWS`].
    pub fn with_rows(self, rows: u32) -> Result<Self, PolicyError> {
        if rows == 0 || rows > Self::MOST_ROWS {
            let found = format!("{}:{rows}", self.kind);
            return Err(PolicyError::of_rows(&found, rows != 0));
        }
        Ok(match self.kind {
            PolicyKind::Default => self,
            kind => Self {
                kind,
                rows: NonZeroU32::new(rows),
            },
        })
    }

    /// The kind, which determines the promise.
    #[must_use]
    pub const fn kind(self) -> PolicyKind {
        self.kind
    }

    /// The maximum number of rows of a block; `None` if there is no limit.
    #[must_use]
    pub const fn rows(self) -> Option<u32> {
        match self.rows {
            Some(rows) => Some(rows.get()),
            None => None,
        }
    }

    /// The numbers of `mlx_row_policy`: the kind and the rows, 0 for no limit.
    #[must_use]
    pub const fn numbers(self) -> [i32; 2] {
        let rows = match self.rows() {
            // Not more than `MOST_ROWS`.
            Some(rows) => rows.cast_signed(),
            None => 0,
        };
        [self.kind as i32, rows]
    }

    /// The policy with these numbers; `None` if they are not valid.
    #[must_use]
    pub fn from_numbers([kind, rows]: [i32; 2]) -> Option<Self> {
        let policy = Self::new(PolicyKind::from_number(kind)?);
        match u32::try_from(rows).ok()? {
            0 => Some(policy.all()),
            rows => policy.with_rows(rows).ok(),
        }
    }
}

impl From<PolicyKind> for Policy {
    fn from(kind: PolicyKind) -> Self {
        Self::new(kind)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rows() {
            None if self.kind != PolicyKind::Default => f.pad(&format!("{}:all", self.kind)),
            Some(rows) if rows != Self::BLOCK_ROWS => f.pad(&format!("{}:{rows}", self.kind)),
            _ => f.pad(self.kind.name()),
        }
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(found: &str) -> Result<Self, PolicyError> {
        let (name, rows) = match found.split_once(':') {
            Some((name, rows)) => (name, Some(rows)),
            None => (found, None),
        };
        let kind = name
            .parse()
            .map_err(|_| PolicyError::of_name(found, name))?;
        let policy = Self::new(kind);
        match rows {
            None => Ok(policy),
            Some("all") => Ok(policy.all()),
            Some(rows) => {
                let is_number = !rows.is_empty() && rows.bytes().all(|byte| byte.is_ascii_digit());
                let is_zero = rows.bytes().all(|byte| byte == b'0');
                rows.parse()
                    .ok()
                    .and_then(|rows| policy.with_rows(rows).ok())
                    .filter(|_| is_number)
                    .ok_or_else(|| PolicyError::of_rows(found, is_number && !is_zero))
            }
        }
    }
}

/// A text that is not a policy, or an invalid number of rows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "found \"{found}\"{why}; a policy is default, exact, narrow or wide, with \":R\" for blocks of R rows (1 or more, 16 if not given) or \":all\" for blocks without limit"
)]
pub struct PolicyError {
    found: String,
    why: &'static str,
}

impl PolicyError {
    fn of_name(found: &str, name: &str) -> Self {
        Self {
            found: found.to_owned(),
            // Policies had this spelling before blocks were introduced.
            why: match name {
                "streamed" => ", which is now \"exact\"",
                _ => "",
            },
        }
    }

    fn of_rows(found: &str, too_many: bool) -> Self {
        Self {
            found: found.to_owned(),
            why: if too_many {
                ", with more rows than fit"
            } else {
                ", where R is not a whole number from 1"
            },
        }
    }
}

named! {
    /// The primitive that computes rows, by its number in `mlx/row_policy.h`.
    #[non_exhaustive]
    "operation" Primitive {
        /// `quantized_matmul`.
        QuantizedMatmul => "quantized_matmul",
        /// `gather_qmm`.
        GatherQmm => "gather_qmm",
        /// `qqmm`.
        QqMatmul => "qqmm",
        /// `gather_qqmm`.
        GatherQqmm => "gather_qqmm",
        /// `matmul`.
        Matmul => "matmul",
        /// `addmm`.
        Addmm => "addmm",
        /// `gather_mm`.
        GatherMm => "gather_mm",
        /// `fast::scaled_dot_product_attention`.
        Attention => "attention",
        /// `fast::gated_delta_update`.
        GatedDelta => "gated_delta",
    }
}

named! {
    /// The kernels that compute a quantized product.
    #[non_exhaustive]
    "path" Path {
        /// There is nothing to compute.
        None => "none",
        /// Rows computed by quads of lanes: K is 64 or 128.
        Quad => "qmv_quad",
        /// One row at a time.
        Qmv => "qmv",
        /// Tiles of rows, with their own order of additions.
        Wide => "qmv_wide",
        /// Tiles of rows, with the additions in the order of the one-row kernel.
        Streamed => "qmv_streamed",
        /// One of MLX's other kernels that compute row by row: gathers, and weights that are not transposed.
        Rows => "rows",
        /// A matrix kernel.
        Matrix => "matrix",
        /// A matrix kernel for the sorted picks of a gather that share weights.
        Sorted => "sorted",
        /// Like [`Path::Streamed`], in the other of two arrangements.
        StreamedAlt => "qmv_streamed_alt",
    }
}

impl Path {
    /// The path's name, with `_fast` for the kernel that reads K in whole blocks: `qmv_fast`.
    #[must_use]
    pub fn kernel_name(self, fast: bool) -> String {
        format!("{self}{}", if fast { "_fast" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_they_are_written() {
        let rows = |policy: Policy, rows| policy.with_rows(rows).unwrap();
        for (text, policy, written) in [
            ("default", Policy::DEFAULT, "default"),
            ("default:64", Policy::DEFAULT, "default"),
            ("default:all", Policy::DEFAULT, "default"),
            ("exact", Policy::EXACT, "exact"),
            ("exact:16", Policy::EXACT, "exact"),
            ("exact:064", rows(Policy::EXACT, 64), "exact:64"),
            ("exact:all", Policy::EXACT.all(), "exact:all"),
            ("narrow:1", rows(Policy::NARROW, 1), "narrow:1"),
            ("wide", Policy::WIDE, "wide"),
            (
                "wide:2147483647",
                rows(Policy::WIDE, Policy::MOST_ROWS),
                "wide:2147483647",
            ),
        ] {
            assert_eq!(text.parse(), Ok(policy), "{text}");
            assert_eq!(policy.to_string(), written);
            assert_eq!(written.parse(), Ok(policy));
            assert_eq!(Policy::from_numbers(policy.numbers()), Some(policy));
        }
        assert_eq!(format!("{:>9}", Policy::EXACT.all()), "exact:all");
        assert_eq!(format!("{:<6}|", Policy::WIDE), "wide  |");
    }

    #[test]
    fn other_texts_are_refused_with_what_is_known() {
        for (text, why) in [
            ("", ""),
            ("Exact", ""),
            (" exact", ""),
            ("fast", ""),
            ("streamed", ", which is now \"exact\""),
            ("streamed:8", ", which is now \"exact\""),
            ("exact:", ", where R is not a whole number from 1"),
            ("exact:0", ", where R is not a whole number from 1"),
            ("exact:-1", ", where R is not a whole number from 1"),
            ("exact:+1", ", where R is not a whole number from 1"),
            ("exact:1.5", ", where R is not a whole number from 1"),
            ("exact:8:8", ", where R is not a whole number from 1"),
            ("exact:ALL", ", where R is not a whole number from 1"),
            (
                "exact:99999999999x",
                ", where R is not a whole number from 1",
            ),
            ("exact:2147483648", ", with more rows than fit"),
            ("exact:99999999999999999999999", ", with more rows than fit"),
        ] {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            let expected = format!("found \"{text}\"{why}; a policy is default, exact, ");
            assert!(error.starts_with(&expected), "{error}");
        }
        assert!(Policy::EXACT.with_rows(0).is_err());
        assert!(Policy::EXACT.with_rows(Policy::MOST_ROWS + 1).is_err());
        for numbers in [[4, 16], [-1, 0], [1, -1]] {
            assert_eq!(Policy::from_numbers(numbers), None, "{numbers:?}");
        }
    }
}
