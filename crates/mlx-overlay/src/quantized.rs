use mlx_overlay_sys as sys;

use crate::ops::{require_elements, require_float};
use crate::{Array, Dtype, Error, Result, stream};

/// How weights are quantized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quantization {
    /// `w = scale * q + bias`, with one scale and one bias for each group of consecutive weights of
    /// a row. Made by [`Quantization::affine`].
    #[non_exhaustive]
    Affine {
        /// Bits a weight: 1, 2, 3, 4, 5, 6 or 8.
        bits: u32,
        /// Weights a group: 32, 64 or 128.
        group_size: u32,
    },
}

impl Quantization {
    /// Affine quantization.
    ///
    /// # Errors
    ///
    /// [`Error::Quantization`] for bits or groups that MLX has no kernels for.
    pub fn affine(bits: u32, group_size: u32) -> Result<Self> {
        if matches!(bits, 1..=6 | 8) && matches!(group_size, 32 | 64 | 128) {
            Ok(Self::Affine { bits, group_size })
        } else {
            Err(Error::Quantization { bits, group_size })
        }
    }

    /// Bits a weight.
    pub fn bits(self) -> u32 {
        let Self::Affine { bits, .. } = self;
        bits
    }

    /// Weights that share a scale and a bias.
    pub fn group_size(self) -> u32 {
        let Self::Affine { group_size, .. } = self;
        group_size
    }

    /// Bits and group size as the bridge takes them; both are small.
    fn raw(self) -> (i32, i32) {
        (self.bits() as i32, self.group_size() as i32)
    }
}

/// A quantized matrix of `n` rows and `k` columns, along which it is grouped. A clone is the same
/// matrix.
#[derive(Debug, Clone)]
pub struct QuantizedMatrix {
    packed: Array,
    scales: Array,
    biases: Array,
    quantization: Quantization,
    columns: usize,
}

impl QuantizedMatrix {
    /// Puts together a matrix from its parts, for example after they came from another thread.
    ///
    /// `packed` is u32 of shape `[n, k * bits / 32]`; `scales` and `biases` are of one
    /// floating-point type and of shape `[n, k / group_size]`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`], [`Error::Dtype`], [`Error::Empty`] or [`Error::TooLarge`] if they do not
    /// fit together.
    pub fn from_parts(
        packed: Array,
        scales: Array,
        biases: Array,
        quantization: Quantization,
    ) -> Result<Self> {
        if packed.dtype() != Dtype::U32 {
            return Err(Error::Dtype {
                argument: "packed",
                found: packed.dtype(),
                expected: Dtype::U32.to_string(),
            });
        }
        require_float("scales", &scales)?;
        if biases.dtype() != scales.dtype() {
            return Err(Error::Dtype {
                argument: "biases",
                found: biases.dtype(),
                expected: format!("{}, as the scales have", scales.dtype()),
            });
        }
        require_elements("packed", &packed)?;
        let &[rows, groups] = scales.shape() else {
            return Err(shape_error(
                "scales",
                &scales,
                "[n, k / group_size]".to_owned(),
            ));
        };
        // Neither product overflows: `groups` is below 2^31.
        let columns = groups * quantization.group_size() as usize;
        let expected = [rows, columns * quantization.bits() as usize / 32];
        if packed.shape() != expected {
            return Err(shape_error(
                "packed",
                &packed,
                format!("{expected:?}, from the scales' shape and {quantization:?}"),
            ));
        }
        if biases.shape() != scales.shape() {
            return Err(shape_error(
                "biases",
                &biases,
                format!("{:?}, as the scales have", scales.shape()),
            ));
        }
        require_indexable(rows, columns, quantization)?;
        Ok(Self {
            packed,
            scales,
            biases,
            quantization,
            columns,
        })
    }

    /// Rows, the `n` of a product.
    pub fn rows(&self) -> usize {
        self.packed.shape()[0]
    }

    /// Columns, the `k` of a product.
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

    /// The biases, of shape `[n, k / group_size]`.
    pub fn biases(&self) -> &Array {
        &self.biases
    }
}

/// Quantizes the rows of a matrix `w` of shape `[n, k]`; `k` must be a multiple of the group size.
/// Scales and biases have the type of `w`.
///
/// # Errors
///
/// [`Error::Shape`], [`Error::Dtype`], [`Error::Empty`] or [`Error::TooLarge`]; MLX's.
pub fn quantize(w: &Array, quantization: Quantization) -> Result<QuantizedMatrix> {
    require_float("w", w)?;
    require_elements("w", w)?;
    let group_size = quantization.group_size() as usize;
    let (rows, columns) = match w.shape() {
        &[rows, columns] if columns % group_size == 0 => (rows, columns),
        _ => {
            return Err(shape_error(
                "w",
                w,
                format!("[n, k] with k a multiple of {group_size}"),
            ));
        }
    };
    require_indexable(rows, columns, quantization)?;
    let (bits, group_size) = quantization.raw();
    let sys::Quantized {
        packed,
        scales,
        biases,
    } = sys::quantize(w.raw()?, group_size, bits, stream::current()?)?;
    Ok(QuantizedMatrix {
        packed: Array::from_raw(packed)?,
        scales: Array::from_raw(scales)?,
        biases: Array::from_raw(biases)?,
        quantization,
        columns,
    })
}

/// The matrix that a quantized one stands for, of shape `[n, k]` and of its scales' type.
///
/// # Errors
///
/// MLX's.
pub fn dequantize(w: &QuantizedMatrix) -> Result<Array> {
    let (bits, group_size) = w.quantization.raw();
    Array::from_raw(sys::dequantize(
        w.packed.raw()?,
        w.scales.raw()?,
        w.biases.raw()?,
        group_size,
        bits,
        stream::current()?,
    )?)
}

/// The product of `x` (`[.., k]`) and the transpose of a quantized matrix (`[n, k]`): `[.., n]`, of
/// the wider of the types of `x` and the scales.
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
    let (bits, group_size) = w.quantization.raw();
    Array::from_raw(sys::quantized_matmul(
        x.raw()?,
        w.packed.raw()?,
        w.scales.raw()?,
        w.biases.raw()?,
        group_size,
        bits,
        stream::current()?,
    )?)
}

fn shape_error(argument: &'static str, array: &Array, expected: String) -> Error {
    Error::Shape {
        argument,
        shape: array.shape().to_vec(),
        expected,
    }
}

/// MLX computes the bits of a row, and its kernels the index of an element, in 32-bit integers.
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
