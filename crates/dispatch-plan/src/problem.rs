//! The input: one quantized product.

use mlx_terms::{Architecture, Format, Mode, named};

use crate::Error;

named! {
    /// The primitive that computes the product.
    "operation" Op {
        /// `quantized_matmul`.
        QuantizedMatmul => "quantized_matmul",
        /// `gather_qmm`.
        GatherQmm => "gather_qmm",
        /// `qqmm`.
        QqMatmul => "qqmm",
        /// `gather_qqmm`.
        GatherQqmm => "gather_qqmm",
    }
}

impl Op {
    /// Whether each product picks its own matrix.
    #[must_use]
    pub const fn gathers(self) -> bool {
        matches!(self, Self::GatherQmm | Self::GatherQqmm)
    }

    /// Whether x is quantized as well.
    #[must_use]
    pub const fn quantizes_x(self) -> bool {
        matches!(self, Self::QqMatmul | Self::GatherQqmm)
    }
}

named! {
    /// The type of x and of the result.
    "dtype" Dtype {
        /// 32 bits.
        Float32 => "float32",
        /// IEEE 16-bit.
        Float16 => "float16",
        /// The upper half of 32 bits.
        Bfloat16 => "bfloat16",
    }
}

/// One quantized product: `batch` times x of (m, k) by weights of n rows of k values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Problem {
    pub architecture: Architecture,
    /// Whether MLX uses the device's matrix units (macOS 26.2 on generation 17; 18 for phones).
    pub nax: bool,
    /// Whether they may be used for float32 (`MLX_ENABLE_TF32`, on unless it is 0).
    pub tf32: bool,
    pub op: Op,
    pub mode: Mode,
    /// The type of x and of the result.
    pub dtype: Dtype,
    /// Bits per weight.
    pub bits: u32,
    /// Weights that share a scale.
    pub group_size: u32,
    /// Whether the weights are (n, k), as in a linear layer.
    pub transpose: bool,
    /// Rows of x that use the same weights.
    pub m: u32,
    /// Outputs per row.
    pub n: u32,
    /// Values per row.
    pub k: u32,
    /// Products of m rows each.
    pub batch: u32,
    /// Matrices from which a gather picks.
    pub experts: u32,
    /// Whether a gather's right-hand indices are sorted.
    pub right_sorted: bool,
    /// Whether nvfp4 weights have one scale for all of them.
    pub global_scale: bool,
}

impl Problem {
    /// An affine 4-bit product of one row in bfloat16, with groups of 64, on a device whose matrix units are not used.
    #[must_use]
    pub const fn new(architecture: Architecture, n: u32, k: u32) -> Self {
        Self {
            architecture,
            nax: false,
            tf32: true,
            op: Op::QuantizedMatmul,
            mode: Mode::Affine,
            dtype: Dtype::Bfloat16,
            bits: 4,
            group_size: 64,
            transpose: true,
            m: 1,
            n,
            k,
            batch: 1,
            experts: 1,
            right_sorted: false,
            global_scale: false,
        }
    }

    /// This product in another mode, with that mode's bits and group.
    #[must_use]
    pub const fn with_mode(self, mode: Mode) -> Self {
        match mode.fixed() {
            Some(format) => self.with_format(format),
            None => Self { mode, ..self },
        }
    }

    /// This product with weights of a format.
    #[must_use]
    pub const fn with_format(self, format: Format) -> Self {
        Self {
            mode: format.mode(),
            bits: format.bits(),
            group_size: format.group_size(),
            ..self
        }
    }

    /// Whether a matrix kernel of this product may use the device's matrix units.
    pub(crate) fn may_take_matrix_units(&self) -> bool {
        self.nax && (self.tf32 || self.dtype != Dtype::Float32)
    }

    /// Whether MLX has this format. The other fields are checked by the code that decides.
    pub(crate) fn check_format(&self) -> Result<(), Error> {
        Format::new(self.mode, self.bits, self.group_size)
            .map(drop)
            .map_err(|error| Error::Invalid(error.to_string()))
    }
}
