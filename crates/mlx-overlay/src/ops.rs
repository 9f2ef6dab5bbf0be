use mlx_overlay_sys::{self as sys, ArrayRef};

use crate::array::guard_evaluation;
use crate::{Array, Dtype, Error, Result, stream};

/// Evaluates arrays together, and waits for them.
///
/// # Errors
///
/// MLX's; [`Error::Lost`] after an earlier failure on this thread.
pub fn eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    let arrays: Vec<&Array> = arrays.into_iter().collect();
    let references = arrays
        .iter()
        .map(|array| {
            Ok(ArrayRef {
                array: array.raw()?,
            })
        })
        .collect::<Result<Vec<ArrayRef<'_>>>>()?;
    guard_evaluation(|| Ok(sys::eval(&references)?))?;
    for array in arrays {
        array.mark_evaluated();
    }
    Ok(())
}

/// The array with its dimensions in reverse order.
///
/// # Errors
///
/// MLX's.
pub fn transpose(array: &Array) -> Result<Array> {
    Array::from_raw(sys::transpose(array.raw()?, stream::current()?)?)
}

/// The matrix product of `a` (`[.., m, k]`) and `b` (`[.., k, n]`), of the wider of their types.
/// Leading dimensions broadcast; a vector counts as a row on the left and as a column on the right.
///
/// # Errors
///
/// [`Error::Dtype`] unless both are of floating point, [`Error::Empty`] for an array without
/// elements; MLX's, if the shapes do not fit or the product is larger than MLX's memory limit.
pub fn matmul(a: &Array, b: &Array) -> Result<Array> {
    for (argument, array) in [("a", a), ("b", b)] {
        require_float(argument, array)?;
        require_elements(argument, array)?;
    }
    Array::from_raw(sys::matmul(a.raw()?, b.raw()?, stream::current()?)?)
}

/// `alpha` times the matrix product of `a` (`[.., m, k]`) and `b` (`[.., k, n]`), plus `beta` times `c`, whose shape
/// broadcasts to `[.., m, n]`: a linear layer with a bias. Of the widest of their types.
///
/// # Errors
///
/// [`Error::Dtype`] unless all are of floating point, [`Error::Empty`] for an array without elements; MLX's, if the
/// shapes do not fit or the product is larger than MLX's memory limit.
pub fn addmm(c: &Array, a: &Array, b: &Array, alpha: f32, beta: f32) -> Result<Array> {
    for (argument, array) in [("c", c), ("a", a), ("b", b)] {
        require_float(argument, array)?;
        require_elements(argument, array)?;
    }
    Array::from_raw(sys::addmm(
        c.raw()?,
        a.raw()?,
        b.raw()?,
        alpha,
        beta,
        stream::current()?,
    )?)
}

pub(crate) fn shape_error(argument: &'static str, array: &Array, expected: String) -> Error {
    Error::Shape {
        argument,
        shape: array.shape().to_vec(),
        expected,
    }
}

pub(crate) fn require_dtype(argument: &'static str, array: &Array, expected: Dtype) -> Result<()> {
    if array.dtype() == expected {
        Ok(())
    } else {
        Err(Error::Dtype {
            argument,
            found: array.dtype(),
            expected: expected.to_string(),
        })
    }
}

pub(crate) fn require_float(argument: &'static str, array: &Array) -> Result<()> {
    require_float_type(argument, array.dtype())
}

pub(crate) fn require_float_type(argument: &'static str, dtype: Dtype) -> Result<()> {
    if dtype.is_float() {
        Ok(())
    } else {
        Err(Error::Dtype {
            argument,
            found: dtype,
            expected: "f32, f16 or bf16".to_owned(),
        })
    }
}

/// MLX's CPU kernels divide by extents.
pub(crate) fn require_elements(argument: &'static str, array: &Array) -> Result<()> {
    if array.len() == 0 {
        Err(Error::Empty {
            argument,
            shape: array.shape().to_vec(),
        })
    } else {
        Ok(())
    }
}
