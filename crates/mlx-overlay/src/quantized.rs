//! Quantized matrices.

mod experts;

pub use experts::{EvaluatedExperts, QuantizedExperts, gather_quantized_matmul, quantize_experts};

use mlx_overlay_sys::{self as sys, WeightFormat};
use mlx_terms::Format;

use crate::array::references;
use crate::ops::{require_dtype, require_elements, require_float, shape_error, take_rows};
use crate::state::State;
use crate::{Array, Dtype, Error, Evaluated, QuantizationMode, Result, stream};

/// How weights are quantized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quantization {
    /// `w = scale * q + bias`, with one scale and one bias for each group of consecutive weights of
    /// a row. Made by [`Quantization::affine`].
    #[non_exhaustive]
    Affine {
        /// Bits per weight: 1, 2, 3, 4, 5, 6 or 8.
        bits: u32,
        /// Weights per group: 32, 64 or 128.
        group_size: u32,
    },
    /// 4-bit floats (E2M1) in groups of 32 with a shared exponent (E8M0).
    Mxfp4,
    /// 8-bit floats (E4M3) in groups of 32 with a shared exponent (E8M0).
    Mxfp8,
    /// 4-bit floats (E2M1) in groups of 16 with a float scale (E4M3).
    Nvfp4,
}

impl Quantization {
    /// Affine quantization.
    ///
    /// # Errors
    ///
    /// [`Error::Quantization`] if MLX has no kernels for these bits or this group size.
    pub fn affine(bits: u32, group_size: u32) -> Result<Self> {
        Format::new(QuantizationMode::Affine, bits, group_size)?;
        Ok(Self::Affine { bits, group_size })
    }

    /// Mode, bits and group size.
    pub fn format(self) -> Format {
        let format = match self {
            Self::Affine { bits, group_size } => {
                Format::new(QuantizationMode::Affine, bits, group_size).ok()
            }
            _ => self.mode().fixed(),
        };
        format.expect("`affine` checks, and the other modes are fixed")
    }

    /// Bits per weight.
    pub fn bits(self) -> u32 {
        self.format().bits()
    }

    /// Weights that share a scale.
    pub fn group_size(self) -> u32 {
        self.format().group_size()
    }

    /// The mode; only affine has a choice of bits and group sizes.
    pub const fn mode(self) -> QuantizationMode {
        match self {
            Self::Affine { .. } => QuantizationMode::Affine,
            Self::Mxfp4 => QuantizationMode::Mxfp4,
            Self::Mxfp8 => QuantizationMode::Mxfp8,
            Self::Nvfp4 => QuantizationMode::Nvfp4,
        }
    }

    /// Whether groups have a bias in addition to their scale.
    pub const fn has_biases(self) -> bool {
        matches!(self, Self::Affine { .. })
    }

    pub(crate) fn raw(self) -> WeightFormat {
        WeightFormat {
            mode: self.mode() as i32,
            // Both are small.
            bits: self.bits() as i32,
            group_size: self.group_size() as i32,
        }
    }
}

/// The names of the dimensions before the columns, for errors.
type Leading = &'static [&'static str];

const MATRIX: Leading = &["n"];

/// A quantized matrix of `n` rows and `k` columns; a group is part of a row. A clone is the same
/// matrix.
#[derive(Debug, Clone)]
pub struct QuantizedMatrix {
    packed: Array,
    scales: Array,
    biases: Option<Array>,
    quantization: Quantization,
    columns: usize,
}

impl QuantizedMatrix {
    /// Makes a matrix of its parts, for example parts that were read from a file.
    ///
    /// `packed` is u32 of shape `[n, k * bits / 32]`. In affine mode, `scales` and `biases` have the
    /// same floating-point type and the shape `[n, k / group_size]`. In the other modes, `scales` are
    /// u8 of that shape, and `biases` is `None`.
    ///
    /// ```
    /// # use mlx_overlay::{Array, Quantization, QuantizedMatrix, dequantize};
    /// # fn main() -> mlx_overlay::Result<()> {
    /// // One row of 32 weights, 4 bits each: all of them 3, with a scale of 2 and a bias of 1.
    /// let packed = Array::full(&[1, 4], 0x3333_3333u32)?;
    /// let scales = Array::full(&[1, 1], 2.0f32)?;
    /// let biases = Array::full(&[1, 1], 1.0f32)?;
    /// let w = QuantizedMatrix::from_parts(packed, scales, biases, Quantization::affine(4, 32)?)?;
    /// assert_eq!(dequantize(&w)?.to_vec::<f32>()?, [7.0; 32]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`], [`Error::Dtype`], [`Error::Biases`], [`Error::Empty`] or
    /// [`Error::TooLarge`] if the parts do not fit together.
    pub fn from_parts(
        packed: Array,
        scales: Array,
        biases: impl Into<Option<Array>>,
        quantization: Quantization,
    ) -> Result<Self> {
        Self::checked(packed, scales, biases.into(), quantization, MATRIX)
    }

    fn checked(
        packed: Array,
        scales: Array,
        biases: Option<Array>,
        quantization: Quantization,
        leading: Leading,
    ) -> Result<Self> {
        require_dtype("packed", &packed, Dtype::U32)?;
        if quantization.has_biases() != biases.is_some() {
            return Err(Error::Biases {
                mode: quantization.mode().name(),
                expected: quantization.has_biases(),
            });
        }
        match &biases {
            Some(biases) => {
                require_float("scales", &scales)?;
                require_dtype("biases", biases, scales.dtype())?;
            }
            None => require_dtype("scales", &scales, Dtype::U8)?,
        }
        require_elements("packed", &packed)?;
        let (groups, others) = match scales.shape().split_last() {
            Some((&groups, others)) if others.len() == leading.len() => (groups, others),
            _ => {
                let expected = format!("[{}, k / group_size]", leading.join(", "));
                return Err(shape_error("scales", &scales, expected));
            }
        };
        // Neither product overflows: `groups` is below 2^31.
        let columns = groups * quantization.group_size() as usize;
        let packed_columns = columns * quantization.bits() as usize / 32;
        let expected = [others, &[packed_columns]].concat();
        if packed.shape() != expected {
            return Err(shape_error(
                "packed",
                &packed,
                format!("{expected:?}, from the scales' shape and {quantization:?}"),
            ));
        }
        if let Some(biases) = biases.as_ref().filter(|b| b.shape() != scales.shape()) {
            return Err(shape_error(
                "biases",
                biases,
                format!("{:?}, the shape of the scales", scales.shape()),
            ));
        }
        require_indexable(others[others.len() - 1], columns, quantization)?;
        Ok(Self {
            packed,
            scales,
            biases,
            quantization,
            columns,
        })
    }

    /// The number of rows, `n` of a product.
    pub fn rows(&self) -> usize {
        self.packed.shape()[self.packed.shape().len() - 2]
    }

    /// The number of columns, `k` of a product.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How it is quantized.
    pub fn quantization(&self) -> Quantization {
        self.quantization
    }

    /// The packed integers, u32 of shape `[n, k * bits / 32]`.
    pub fn packed(&self) -> &Array {
        &self.packed
    }

    /// The scales, of shape `[n, k / group_size]`.
    pub fn scales(&self) -> &Array {
        &self.scales
    }

    /// The biases, of shape `[n, k / group_size]`, if the mode has them.
    pub fn biases(&self) -> Option<&Array> {
        self.biases.as_ref()
    }

    /// The rows at these indices, in order, as in an embedding lookup.
    ///
    /// # Errors
    ///
    /// [`Error::Index`] for an index out of range; those of [`QuantizedMatrix::from_parts`] if there
    /// are no indices; MLX's.
    pub fn take_rows(&self, rows: &[u32]) -> Result<Self> {
        let biases = self.biases.as_ref().map(|b| take_rows(b, rows));
        Self::from_parts(
            take_rows(&self.packed, rows)?,
            take_rows(&self.scales, rows)?,
            biases.transpose()?,
            self.quantization,
        )
    }

    /// Evaluates the matrix and returns it in a form that any thread can put into its graph, such as weights that a
    /// server's threads share.
    ///
    /// ```
    /// # use mlx_overlay::{Array, Quantization, quantize, quantized_matmul};
    /// # fn main() -> mlx_overlay::Result<()> {
    /// let w = quantize(&Array::full(&[8, 64], 0.5f32)?, Quantization::affine(4, 64)?)?;
    /// let weights = w.evaluate()?;
    /// std::thread::scope(|threads| {
    ///     let product = threads.spawn(|| {
    ///         let x = Array::full(&[1, 64], 1.0f32)?;
    ///         quantized_matmul(&x, &weights.to_matrix()?)?.to_vec::<f32>()
    ///     });
    ///     assert_eq!(product.join().unwrap()?, [32.0; 8]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`crate::eval()`].
    pub fn evaluate(&self) -> Result<EvaluatedMatrix> {
        crate::eval(self.parts())?;
        Ok(EvaluatedMatrix {
            packed: self.packed.evaluate()?,
            scales: self.scales.evaluate()?,
            biases: self.biases.as_ref().map(Array::evaluate).transpose()?,
            quantization: self.quantization,
        })
    }

    pub(crate) fn parts(&self) -> Vec<&Array> {
        [&self.packed, &self.scales]
            .into_iter()
            .chain(&self.biases)
            .collect()
    }
}

/// An evaluated quantized matrix that any thread can read; see [`QuantizedMatrix::evaluate`].
#[derive(Debug)]
pub struct EvaluatedMatrix {
    packed: Evaluated,
    scales: Evaluated,
    biases: Option<Evaluated>,
    quantization: Quantization,
}

impl EvaluatedMatrix {
    /// Puts the matrix into the calling thread's graph, without copying it.
    ///
    /// # Errors
    ///
    /// [`Error::ThreadEnding`] or [`Error::ProcessEnding`].
    pub fn to_matrix(&self) -> Result<QuantizedMatrix> {
        self.to_parts(MATRIX)
    }

    fn to_parts(&self, leading: Leading) -> Result<QuantizedMatrix> {
        let biases = self.biases.as_ref().map(Evaluated::to_array).transpose()?;
        QuantizedMatrix::checked(
            self.packed.to_array()?,
            self.scales.to_array()?,
            biases,
            self.quantization,
            leading,
        )
    }
}

/// Quantizes the rows of a matrix `w` of shape `[n, k]`; `k` must be a multiple of the group size.
/// Affine scales and biases have the type of `w`.
///
/// A NaN disappears without an error: its group gets some finite scale and values. If weights may contain NaN, check
/// them first.
///
/// # Errors
///
/// [`Error::Shape`], [`Error::Dtype`], [`Error::Empty`] or [`Error::TooLarge`]; MLX's.
pub fn quantize(w: &Array, quantization: Quantization) -> Result<QuantizedMatrix> {
    quantize_parts(w, quantization, MATRIX)
}

fn quantize_parts(
    w: &Array,
    quantization: Quantization,
    leading: Leading,
) -> Result<QuantizedMatrix> {
    require_float("w", w)?;
    require_elements("w", w)?;
    let group_size = quantization.group_size() as usize;
    let (rows, columns) = match w.shape() {
        &[.., rows, columns]
            if w.shape().len() == leading.len() + 1 && columns % group_size == 0 =>
        {
            (rows, columns)
        }
        _ => {
            let leading = leading.join(", ");
            let expected = format!("[{leading}, k] with k a multiple of {group_size}");
            return Err(shape_error("w", w, expected));
        }
    };
    require_indexable(rows, columns, quantization)?;
    let sys::Quantized {
        packed,
        scales,
        biases,
    } = sys::quantize(w.raw()?, &quantization.raw(), stream::current()?)?;
    let matrix = QuantizedMatrix {
        packed: Array::computed(packed, &[w])?,
        scales: Array::computed(scales, &[w])?,
        biases: (!biases.is_null())
            .then(|| Array::computed(biases, &[w]))
            .transpose()?,
        quantization,
        columns,
    };
    let states: Vec<_> = matrix.parts().into_iter().map(Array::state).collect();
    State::tie(&states);
    Ok(matrix)
}

/// Converts a quantized matrix back to numbers: `[n, k]`, of its scales' type if affine, of
/// bf16 otherwise.
///
/// # Errors
///
/// MLX's.
pub fn dequantize(w: &QuantizedMatrix) -> Result<Array> {
    let raw = sys::dequantize(
        &references(&w.parts())?,
        &w.quantization.raw(),
        stream::current()?,
    )?;
    Array::computed(raw, &w.parts())
}

/// The product of `x` (`[.., k]`) and the transpose of a quantized matrix (`[n, k]`): `[.., n]`. If the matrix is
/// affine, the types of `x` and the scales are [promoted](crate#types); otherwise the result has the type of `x`.
///
/// # Errors
///
/// [`Error::Shape`], [`Error::Dtype`], [`Error::Empty`] or [`Error::TooLarge`]; MLX's.
pub fn quantized_matmul(x: &Array, w: &QuantizedMatrix) -> Result<Array> {
    require_float("x", x)?;
    require_elements("x", x)?;
    if x.shape().last() != Some(&w.columns) {
        return Err(shape_error(
            "x",
            x,
            format!("[.., {}], as the matrix has {0} columns", w.columns),
        ));
    }
    let vectors = x.len() / w.columns;
    if !below_2_31(x.len()) || !vectors.checked_mul(w.rows()).is_some_and(below_2_31) {
        return Err(Error::TooLarge {
            what: "the elements of x and of the product",
            shape: x.shape().to_vec(),
        });
    }
    let raw = sys::quantized_matmul(
        x.raw()?,
        &references(&w.parts())?,
        &w.quantization.raw(),
        stream::current()?,
    )?;
    let inputs: Vec<&Array> = [x].into_iter().chain(w.parts()).collect();
    Array::computed(raw, &inputs)
}

/// MLX counts the bits of a row in 32-bit integers, and its kernels use 32-bit indices of elements.
fn require_indexable(rows: usize, columns: usize, quantization: Quantization) -> Result<()> {
    let row_bits = columns.checked_mul(quantization.bits() as usize);
    if row_bits.is_some_and(below_2_31) && rows.checked_mul(columns).is_some_and(below_2_31) {
        Ok(())
    } else {
        Err(Error::TooLarge {
            what: "the elements of the matrix and the bits of a row",
            shape: vec![rows, columns],
        })
    }
}

fn below_2_31(count: usize) -> bool {
    i32::try_from(count).is_ok()
}
