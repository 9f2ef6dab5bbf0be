//! Quantized matrices of one shape, among which a gather picks: the experts of a mixture.

use mlx_overlay_sys as sys;

use super::{EvaluatedMatrix, Quantization, QuantizedMatrix, quantize};
#[cfg(doc)]
use crate::Error;
use crate::array::references;
use crate::ops::{Picked, require_elements, require_float, require_matrices, reshape, shape_error};
use crate::{Array, Result, stream};

/// So many quantized matrices of `n` rows and `k` columns. A clone is the same matrices.
#[derive(Debug, Clone)]
pub struct QuantizedExperts {
    /// `[experts, n, ..]` each; the matrix beside it is the same memory as `[experts * n, ..]`.
    parts: Vec<Array>,
    all: QuantizedMatrix,
    experts: usize,
}

impl QuantizedExperts {
    /// Puts the matrices together from parts as [`QuantizedMatrix::from_parts`] takes them, with one dimension more in
    /// front: the experts.
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
        let biases = biases.into();
        let experts = match packed.shape() {
            &[experts, _, _] => experts,
            _ => {
                let expected = "[experts, n, k * bits / 32]".to_owned();
                return Err(shape_error("packed", &packed, expected));
            }
        };
        let rows = packed.shape()[1];
        let all = QuantizedMatrix::stacked(
            flat("packed", &packed, [experts, rows])?,
            flat("scales", &scales, [experts, rows])?,
            biases
                .as_ref()
                .map(|biases| flat("biases", biases, [experts, rows]))
                .transpose()?,
            quantization,
            experts,
        )?;
        Ok(Self {
            parts: [packed, scales].into_iter().chain(biases).collect(),
            all,
            experts,
        })
    }

    /// Splits the rows of a matrix among so many experts: the first `n` are the first one's.
    fn from_matrix(all: QuantizedMatrix, experts: usize) -> Result<Self> {
        let rows = all.rows() / experts;
        let part = |array: &&Array| reshape(array, &[experts, rows, array.shape()[1]]);
        let parts = all.parts().iter().map(part).collect::<Result<_>>()?;
        Ok(Self {
            parts,
            all,
            experts,
        })
    }

    /// How many matrices there are.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// Rows of each, the `n` of a product.
    pub fn rows(&self) -> usize {
        self.all.rows() / self.experts
    }

    /// Columns of each, the `k` of a product.
    pub fn columns(&self) -> usize {
        self.all.columns()
    }

    /// How they are quantized.
    pub fn quantization(&self) -> Quantization {
        self.all.quantization()
    }

    /// Evaluates the matrices, and gives them in a form that any thread can take into its graph.
    ///
    /// # Errors
    ///
    /// Those of [`crate::eval()`].
    pub fn evaluate(&self) -> Result<EvaluatedExperts> {
        Ok(EvaluatedExperts {
            all: self.all.evaluate()?,
            experts: self.experts,
        })
    }
}

/// Evaluated quantized matrices, which any thread can read; see [`QuantizedExperts::evaluate`].
#[derive(Debug)]
pub struct EvaluatedExperts {
    all: EvaluatedMatrix,
    experts: usize,
}

impl EvaluatedExperts {
    /// Takes the matrices, without copying them, into the calling thread's graph.
    ///
    /// # Errors
    ///
    /// [`Error::ThreadEnding`] or [`Error::ProcessEnding`].
    pub fn to_experts(&self) -> Result<QuantizedExperts> {
        QuantizedExperts::from_matrix(self.all.to_matrices(self.experts)?, self.experts)
    }
}

/// Quantizes the rows of matrices `w` of shape `[experts, n, k]`, as [`quantize()`] does those of one. All together they
/// have less than 2^31 elements; of parts that are quantized already ([`QuantizedExperts::from_parts`]) each matrix may
/// have as many.
///
/// # Errors
///
/// Those of [`quantize()`].
pub fn quantize_experts(w: &Array, quantization: Quantization) -> Result<QuantizedExperts> {
    require_float("w", w)?;
    require_elements("w", w)?;
    let &[experts, rows, columns] = w.shape() else {
        return Err(shape_error("w", w, "[experts, n, k]".to_owned()));
    };
    let group_size = quantization.group_size() as usize;
    if columns % group_size != 0 {
        let expected = format!("[experts, n, k] with k a multiple of {group_size}");
        return Err(shape_error("w", w, expected));
    }
    // The reshape checks the product.
    let all = reshape(w, &[experts.saturating_mul(rows), columns])?;
    QuantizedExperts::from_matrix(quantize(&all, quantization)?, experts)
}

/// Products of matrices of `x` (`[.., m, k]`) with the transposes of experts (`[n, k]` each) that indices (u32) pick:
/// `[.., m, n]`. Indices and `sorted` are as those of [`crate::gather_matmul`].
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
    let parts: Vec<&Array> = w.parts.iter().collect();
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

/// The part without its first dimension, whose entries lie behind one another.
fn flat(argument: &'static str, part: &Array, [experts, rows]: [usize; 2]) -> Result<Array> {
    require_elements(argument, part)?;
    match part.shape() {
        &[e, r, last] if (e, r) == (experts, rows) => reshape(part, &[experts * rows, last]),
        _ => Err(shape_error(
            argument,
            part,
            format!("[{experts}, {rows}, ..], as packed has"),
        )),
    }
}
