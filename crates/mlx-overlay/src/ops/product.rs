//! Products of dense matrices.

use mlx_overlay_sys::{self as sys, ArrayRef, DeviceKind};

use super::{
    broadcast, elements, require_dtype, require_elements, require_float, require_floats,
    shape_error,
};
use crate::array::references;
use crate::{Array, Dtype, Error, Result, stream};

/// The matrix product of `a` (`[.., m, k]`) and `b` (`[.., k, n]`), in [the type to which theirs are
/// promoted](crate#types).
/// Leading dimensions broadcast; a vector counts as a row on the left and as a column on the right.
///
/// # Errors
///
/// [`Error::Dtype`] unless both are floating-point, [`Error::Empty`] for an array without
/// elements, [`Error::OutOfMemory`] if the product is larger than MLX's memory limit; MLX's, if the shapes do not fit.
pub fn matmul(a: &Array, b: &Array) -> Result<Array> {
    require_floats(&[("a", a), ("b", b)])?;
    let raw = sys::matmul(a.raw()?, b.raw()?, stream::current()?)?;
    Array::computed(raw, &[a, b])
}

/// `alpha` times the matrix product of `a` (`[.., m, k]`) and `b` (`[.., k, n]`), plus `beta` times `c`, whose shape
/// broadcasts to `[.., m, n]`: a linear layer with a bias. [Types are promoted](crate#types).
///
/// ```
/// # use mlx_overlay::{Array, addmm};
/// # fn main() -> mlx_overlay::Result<()> {
/// let x = Array::from_slice(&[1.0f32, 2.0], &[1, 2])?;
/// let w = Array::from_slice(&[1.0f32, 0.0, 0.0, 1.0], &[2, 2])?;
/// let bias = Array::from_slice(&[10.0f32, 20.0], &[2])?;
/// assert_eq!(addmm(&bias, &x, &w, 1.0, 1.0)?.to_vec::<f32>()?, [11.0, 22.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::Dtype`] unless all are floating-point, [`Error::Empty`] for an array without elements,
/// [`Error::OutOfMemory`] if the product is larger than MLX's memory limit; MLX's, if the shapes do not fit.
pub fn addmm(c: &Array, a: &Array, b: &Array, alpha: f32, beta: f32) -> Result<Array> {
    require_floats(&[("c", c), ("a", a), ("b", b)])?;
    let raw = sys::addmm(
        c.raw()?,
        a.raw()?,
        b.raw()?,
        alpha,
        beta,
        stream::current()?,
    )?;
    Array::computed(raw, &[c, a, b])
}

/// Products of matrices of `a` (`[.., m, k]`) and matrices of `b` (`[.., k, n]`) that are picked by indices (u32). The
/// result is `[.., m, n]`; its leading dimensions are those to which the indices broadcast. An index counts the
/// matrices of its array in row-major order. Without `a_indices`, each matrix of `a` is used once, in its leading
/// dimensions. An index past the end picks the last matrix.
///
/// With `sorted` you promise that the indices of `b` ascend, which is faster for many. If they do not, results may be
/// wrong.
///
/// ```
/// # use mlx_overlay::{Array, gather_matmul};
/// # fn main() -> mlx_overlay::Result<()> {
/// // Two tokens, each with the expert it was routed to.
/// let x = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 1, 2])?;
/// let experts = Array::from_slice(&[1.0f32, 0.0, 0.0, 1.0], &[2, 2, 1])?;
/// let routed = Array::from_slice(&[1u32, 0], &[2])?;
/// let y = gather_matmul(&x, &experts, None, &routed, false)?;
/// assert_eq!(y.shape(), [2, 1, 1]);
/// assert_eq!(y.to_vec::<f32>()?, [2.0, 3.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::Dtype`], on the CPU also for f16 and bf16, for which MLX has no gathered product there; [`Error::Empty`],
/// [`Error::Shape`] or [`Error::TooLarge`]; MLX's.
pub fn gather_matmul(
    a: &Array,
    b: &Array,
    a_indices: Option<&Array>,
    b_indices: &Array,
    sorted: bool,
) -> Result<Array> {
    require_floats(&[("a", a), ("b", b)])?;
    require_matrices("a", a)?;
    require_matrices("b", b)?;
    let (k, n) = (
        b.shape()[b.shape().len() - 2],
        b.shape()[b.shape().len() - 1],
    );
    if a.shape().last() != Some(&k) {
        return Err(shape_error("a", a, format!("[.., {k}], as b has {k} rows")));
    }
    let picked = Picked::new(a, a_indices, b_indices)?;
    picked.require_indexable(a, n)?;
    let on = stream::current()?;
    if on.device == DeviceKind::Cpu && a.dtype() == b.dtype() {
        // MLX would only fail during the evaluation.
        require_dtype("a", a, Dtype::F32)?;
    }
    let raw = sys::gather_matmul(
        a.raw()?,
        b.raw()?,
        &picked.left()?,
        b_indices.raw()?,
        sorted,
        on,
    )?;
    Array::computed(raw, &picked.inputs(&[a, b]))
}

/// The checked indices of a gather.
pub(crate) struct Picked<'a> {
    left: Option<&'a Array>,
    right: &'a Array,
    products: Vec<usize>,
}

impl<'a> Picked<'a> {
    pub(crate) fn new(x: &Array, left: Option<&'a Array>, right: &'a Array) -> Result<Self> {
        for (argument, indices) in [
            ("the left indices", left),
            ("the right indices", Some(right)),
        ] {
            if let Some(indices) = indices {
                require_dtype(argument, indices, Dtype::U32)?;
                require_elements(argument, indices)?;
            }
        }
        let leading = &x.shape()[..x.shape().len() - 2];
        let of_left = left.map_or(leading, Array::shape);
        let products = broadcast(of_left, right.shape()).ok_or_else(|| {
            shape_error(
                "the right indices",
                right,
                format!("a shape that broadcasts with {of_left:?}"),
            )
        })?;
        Ok(Self {
            left,
            right,
            products,
        })
    }

    /// MLX's kernels use 32-bit indices of elements.
    pub(crate) fn require_indexable(&self, x: &Array, outputs: usize) -> Result<()> {
        let rows = x.shape()[x.shape().len() - 2];
        let mut shape = self.products.clone();
        shape.extend([rows, outputs]);
        let fits = |count: Option<usize>| count.is_some_and(|count| i32::try_from(count).is_ok());
        if fits(elements(&shape)) && fits(Some(x.len())) {
            Ok(())
        } else {
            Err(Error::TooLarge {
                what: "the elements of x and of the products",
                shape,
            })
        }
    }

    pub(crate) fn left(&self) -> Result<Vec<ArrayRef<'a>>> {
        let left: Vec<&Array> = self.left.into_iter().collect();
        references(&left)
    }

    pub(crate) fn inputs(&self, others: &[&'a Array]) -> Vec<&'a Array> {
        let mut inputs = others.to_vec();
        inputs.extend(self.left);
        inputs.push(self.right);
        inputs
    }
}

pub(crate) fn require_matrices(argument: &'static str, array: &Array) -> Result<()> {
    if array.shape().len() < 2 {
        return Err(shape_error(
            argument,
            array,
            "[.., rows, columns]".to_owned(),
        ));
    }
    require_float(argument, array)
}
