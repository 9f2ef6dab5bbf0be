//! Quantized matrices of one shape from which a gather picks: the experts of a mixture.

use mlx_overlay_sys as sys;

#[cfg(doc)]
use super::{Error, quantize};
use super::{EvaluatedMatrix, Leading, Quantization, QuantizedMatrix, quantize_parts};
use crate::array::references;
use crate::ops::{Picked, require_elements, require_float, require_matrices, shape_error};
use crate::{Array, Result, stream};

const EXPERTS: Leading = &["experts", "n"];

/// Several quantized matrices of `n` rows and `k` columns. A clone is the same matrices.
#[derive(Debug, Clone)]
pub struct QuantizedExperts {
    /// A matrix whose parts have one more leading dimension.
    all: QuantizedMatrix,
}

impl QuantizedExperts {
    /// Makes the matrices of parts like those of [`QuantizedMatrix::from_parts`], with one more leading dimension: the
    /// experts.
    ///
    /// ```
    /// # use mlx_overlay::{Array, Quantization, QuantizedExperts};
    /// # fn main() -> mlx_overlay::Result<()> {
    /// // Two experts of 8 rows with 32 weights of 8 bits each.
    /// let packed = Array::full(&[2, 8, 8], 0u32)?;
    /// let scales = Array::full(&[2, 8, 1], 127u8)?;
    /// let experts = QuantizedExperts::from_parts(packed, scales, None, Quantization::Mxfp8)?;
    /// assert_eq!((experts.experts(), experts.rows(), experts.columns()), (2, 8, 32));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`QuantizedMatrix::from_parts`].
    pub fn from_parts(
        packed: Array,
        scales: Array,
        biases: impl Into<Option<Array>>,
        quantization: Quantization,
    ) -> Result<Self> {
        QuantizedMatrix::checked(packed, scales, biases.into(), quantization, EXPERTS)
            .map(|all| Self { all })
    }

    /// The number of matrices.
    pub fn experts(&self) -> usize {
        self.all.packed().shape()[0]
    }

    /// The number of rows of each, `n` of a product.
    pub fn rows(&self) -> usize {
        self.all.rows()
    }

    /// The number of columns of each, `k` of a product.
    pub fn columns(&self) -> usize {
        self.all.columns()
    }

    /// How they are quantized.
    pub fn quantization(&self) -> Quantization {
        self.all.quantization()
    }

    /// Evaluates the matrices and returns them in a form that any thread can put into its graph.
    ///
    /// # Errors
    ///
    /// Those of [`crate::eval()`].
    pub fn evaluate(&self) -> Result<EvaluatedExperts> {
        let all = self.all.evaluate()?;
        Ok(EvaluatedExperts { all })
    }
}

/// Evaluated quantized matrices that any thread can read; see [`QuantizedExperts::evaluate`].
#[derive(Debug)]
pub struct EvaluatedExperts {
    all: EvaluatedMatrix,
}

impl EvaluatedExperts {
    /// Puts the matrices into the calling thread's graph, without copying them.
    ///
    /// # Errors
    ///
    /// [`Error::ThreadEnding`] or [`Error::ProcessEnding`].
    pub fn to_experts(&self) -> Result<QuantizedExperts> {
        let all = self.all.to_parts(EXPERTS)?;
        Ok(QuantizedExperts { all })
    }
}

/// Quantizes the rows of matrices `w` of shape `[experts, n, k]`, like [`quantize()`] for a single matrix.
///
/// ```
/// # use mlx_overlay::{Array, Quantization, quantize_experts};
/// # fn main() -> mlx_overlay::Result<()> {
/// let w = Array::full(&[4, 8, 64], 0.5f32)?;
/// let experts = quantize_experts(&w, Quantization::affine(4, 64)?)?;
/// assert_eq!((experts.experts(), experts.rows(), experts.columns()), (4, 8, 64));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Those of [`quantize()`].
pub fn quantize_experts(w: &Array, quantization: Quantization) -> Result<QuantizedExperts> {
    let all = quantize_parts(w, quantization, EXPERTS)?;
    Ok(QuantizedExperts { all })
}

/// Products of matrices of `x` (`[.., m, k]`) and the transposes of experts (`[n, k]` each) that are picked by indices
/// (u32): `[.., m, n]`. Indices and `sorted` are those of [`crate::gather_matmul`].
///
/// ```
/// # use mlx_overlay::{Array, Quantization, gather_quantized_matmul, quantize_experts};
/// # fn main() -> mlx_overlay::Result<()> {
/// // Two experts: the first has weights of 1, the second of 2.
/// let w: Vec<f32> = (0..2 * 8 * 32).map(|i| if i < 8 * 32 { 1.0 } else { 2.0 }).collect();
/// let w = Array::from_slice(&w, &[2, 8, 32])?;
/// let experts = quantize_experts(&w, Quantization::affine(4, 32)?)?;
/// // Three tokens, each with the two experts that it was routed to.
/// let x = Array::full(&[3, 1, 1, 32], 0.5f32)?;
/// let routed = Array::from_slice(&[0u32, 1, 1, 0, 0, 1], &[3, 2])?;
/// let y = gather_quantized_matmul(&x, &experts, None, &routed, false)?;
/// assert_eq!(y.shape(), [3, 2, 1, 8]);
/// assert_eq!(y.to_vec::<f32>()?[..16], [[16.0f32; 8], [32.0; 8]].concat());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::Dtype`], [`Error::Empty`], [`Error::Shape`] or [`Error::TooLarge`]; MLX's.
pub fn gather_quantized_matmul(
    x: &Array,
    w: &QuantizedExperts,
    x_indices: Option<&Array>,
    w_indices: &Array,
    sorted: bool,
) -> Result<Array> {
    require_float("x", x)?;
    require_elements("x", x)?;
    require_matrices("x", x)?;
    if x.shape().last() != Some(&w.columns()) {
        return Err(shape_error(
            "x",
            x,
            format!("[.., {}], as the matrices have {0} columns", w.columns()),
        ));
    }
    let picked = Picked::new(x, x_indices, w_indices)?;
    picked.require_indexable(x, w.rows())?;
    let parts = w.all.parts();
    let raw = sys::gather_quantized_matmul(
        x.raw()?,
        &references(&parts)?,
        &picked.left()?,
        w_indices.raw()?,
        &w.quantization().raw(),
        sorted,
        stream::current()?,
    )?;
    let others: Vec<&Array> = [x].into_iter().chain(parts).collect();
    Array::computed(raw, &picked.inputs(&others))
}
