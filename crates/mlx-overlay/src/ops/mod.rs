//! Operations, and the checks that they share.

mod elementwise;
mod order;
mod product;
mod shape;

pub use elementwise::{
    add, equal, greater, greater_equal, less, less_equal, multiply, not_equal, sigmoid, where_,
};
pub use order::{argmax, argpartition, cumsum, softmax, softmax_along, sort};
pub(crate) use product::{Picked, require_matrices};
pub use product::{addmm, gather_matmul, matmul};
pub use shape::{
    as_type, concatenate, reshape, slice, slice_update, take, take_rows, transpose, transpose_axes,
};

use crate::{Array, Dtype, Error, Result};

/// The number of elements of an array of this shape; `None` if it overflows.
pub(crate) fn elements(shape: &[usize]) -> Option<usize> {
    // If any extent is 0, so is the product, whatever the other extents and their order.
    if shape.contains(&0) {
        return Some(0);
    }
    shape
        .iter()
        .try_fold(1usize, |product, &extent| product.checked_mul(extent))
}

/// The name of the byte count in an error about its overflow.
pub(crate) const BYTES: &str = "the number of bytes";

pub(crate) fn extent(value: usize, shape: &[usize]) -> Result<i32> {
    i32::try_from(value).map_err(|_| Error::TooLarge {
        what: "each extent",
        shape: shape.to_vec(),
    })
}

pub(crate) fn extents(values: &[usize]) -> Result<Vec<i32>> {
    values.iter().map(|&value| extent(value, values)).collect()
}

/// The index of a dimension, counted from the start. Negative numbers count from the end.
pub(crate) fn dimension(argument: &'static str, array: &Array, axis: isize) -> Result<usize> {
    let dimensions = array.shape().len();
    let from_start = if axis < 0 {
        dimensions.checked_sub(axis.unsigned_abs())
    } else {
        Some(axis.unsigned_abs()).filter(|&axis| axis < dimensions)
    };
    from_start.ok_or(Error::Axis {
        argument,
        axis,
        dimensions,
    })
}

pub(crate) fn shape_error(argument: &'static str, array: &Array, expected: String) -> Error {
    Error::Shape {
        argument,
        shape: array.shape().to_vec(),
        expected,
    }
}

pub(crate) fn require_dtype(argument: &'static str, array: &Array, expected: Dtype) -> Result<()> {
    require(argument, array, array.dtype() == expected, || {
        expected.to_string()
    })
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

pub(crate) fn require_integer(argument: &'static str, array: &Array) -> Result<()> {
    require(argument, array, array.dtype().is_integer(), || {
        "an integer type".to_owned()
    })
}

fn require(
    argument: &'static str,
    array: &Array,
    holds: bool,
    expected: impl FnOnce() -> String,
) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(Error::Dtype {
            argument,
            found: array.dtype(),
            expected: expected(),
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

/// Requires floating-point types, with elements.
pub(crate) fn require_floats(arguments: &[(&'static str, &Array)]) -> Result<()> {
    for &(argument, array) in arguments {
        require_float(argument, array)?;
        require_elements(argument, array)?;
    }
    Ok(())
}

/// The shape to which two shapes broadcast.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let dimensions = a.len().max(b.len());
    let from_end = |shape: &[usize], i: usize| match shape.len().checked_sub(i + 1) {
        Some(at) => shape[at],
        None => 1,
    };
    let mut shape = Vec::with_capacity(dimensions);
    for i in (0..dimensions).rev() {
        match (from_end(a, i), from_end(b, i)) {
            (x, y) if x == y => shape.push(x),
            (1, y) => shape.push(y),
            (x, 1) => shape.push(x),
            _ => return None,
        }
    }
    Some(shape)
}
