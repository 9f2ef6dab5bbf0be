//! Operations that reshape an array or select elements.

use std::ops::Range;

use mlx_overlay_sys as sys;

use super::{
    dimension, elements, extents, require_dtype, require_elements, require_integer, shape_error,
};
use crate::array::references;
use crate::{Array, Dtype, Error, Result, stream};

/// The array with its elements converted to a type.
///
/// Conversion to an integer drops the fraction. A value outside the integer type's range, or NaN, gives an unspecified
/// number; as bool, NaN is `true`.
///
/// # Errors
///
/// [`Error::Empty`]; MLX's.
pub fn as_type(array: &Array, dtype: Dtype) -> Result<Array> {
    require_elements("the array", array)?;
    let raw = sys::as_type(array.raw()?, dtype.raw(), stream::current()?)?;
    Array::computed(raw, &[array])
}

/// The same elements, row-major, in another shape.
///
/// # Errors
///
/// [`Error::Length`] if the elements do not fill it, [`Error::TooLarge`], [`Error::Empty`]; MLX's.
pub fn reshape(array: &Array, shape: &[usize]) -> Result<Array> {
    require_elements("the array", array)?;
    if elements(shape) != Some(array.len()) {
        return Err(Error::Length {
            elements: array.len(),
            shape: shape.to_vec(),
        });
    }
    let raw = sys::reshape(array.raw()?, &extents(shape)?, stream::current()?)?;
    Array::computed(raw, &[array])
}

/// The array with its dimensions in reverse order.
///
/// # Errors
///
/// MLX's.
pub fn transpose(array: &Array) -> Result<Array> {
    let raw = sys::transpose(array.raw()?, stream::current()?)?;
    Array::computed(raw, &[array])
}

/// The array with its dimensions in this order: dimension `i` of the result is `axes[i]` of the
/// array.
///
/// # Errors
///
/// [`Error::TooLarge`]; MLX's, unless `axes` names each dimension once.
pub fn transpose_axes(array: &Array, axes: &[usize]) -> Result<Array> {
    let raw = sys::transpose_axes(array.raw()?, &extents(axes)?, stream::current()?)?;
    Array::computed(raw, &[array])
}

/// The elements of the array within these ranges, one for each dimension.
///
/// # Errors
///
/// [`Error::Shape`] for a range that is empty or not within the array.
pub fn slice(array: &Array, ranges: &[Range<usize>]) -> Result<Array> {
    let (start, stop) = bounds(array, ranges)?;
    let raw = sys::slice(array.raw()?, &start, &stop, stream::current()?)?;
    Array::computed(raw, &[array])
}

/// The array with the elements within these ranges replaced by `update`, which has their shape.
///
/// MLX writes in place if nothing else refers to the array during the evaluation: drop it first.
///
/// # Errors
///
/// [`Error::Shape`] for a range that is empty or not within the array, or an update of another
/// shape, [`Error::Dtype`] for an update of another type; MLX's.
pub fn slice_update(array: &Array, update: &Array, ranges: &[Range<usize>]) -> Result<Array> {
    let (start, stop) = bounds(array, ranges)?;
    let shape: Vec<usize> = ranges.iter().map(Range::len).collect();
    if update.shape() != shape {
        return Err(shape_error(
            "update",
            update,
            format!("{shape:?}, the shape of the ranges"),
        ));
    }
    require_dtype("update", update, array.dtype())?;
    let raw = sys::slice_update(
        array.raw()?,
        update.raw()?,
        &start,
        &stop,
        stream::current()?,
    )?;
    Array::computed(raw, &[array, update])
}

/// Joins the arrays along a dimension; the other dimensions must be equal. [Types are promoted](crate#types).
///
/// ```
/// # use mlx_overlay::{Array, concatenate};
/// # fn main() -> mlx_overlay::Result<()> {
/// let a = Array::from_slice(&[1.0f32, 2.0], &[1, 2])?;
/// let b = Array::from_slice(&[3.0f32], &[1, 1])?;
/// assert_eq!(concatenate(&[&a, &b], -1)?.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::Axis`]; [`Error::Empty`] for an array without elements, and if there are no arrays; [`Error::Shape`] if
/// another dimension differs; [`Error::TooLarge`]; MLX's.
pub fn concatenate(arrays: &[&Array], axis: isize) -> Result<Array> {
    let Some(first) = arrays.first() else {
        return Err(Error::Empty {
            argument: "arrays",
            shape: vec![0],
        });
    };
    let axis = dimension("arrays", first, axis)?;
    let mut shape = first.shape().to_vec();
    shape[axis] = 0;
    for array in arrays {
        require_elements("arrays", array)?;
        let others = |shape: &[usize]| -> Option<Vec<usize>> {
            let mut shape = shape.to_vec();
            (axis < shape.len()).then(|| shape.remove(axis))?;
            Some(shape)
        };
        if others(array.shape()) != others(first.shape()) {
            return Err(shape_error(
                "arrays",
                array,
                format!(
                    "{:?} like the first array, except for dimension {axis}",
                    first.shape()
                ),
            ));
        }
        shape[axis] += array.shape()[axis];
    }
    extents(&shape)?;
    // It cannot have 2^31 dimensions.
    let raw = sys::concatenate(&references(arrays)?, axis as i32, stream::current()?)?;
    Array::computed(raw, arrays)
}

/// The entries of the first dimension at these indices, in order.
///
/// # Errors
///
/// [`Error::Index`] for an index out of range, [`Error::Empty`]; MLX's.
pub fn take_rows(array: &Array, indices: &[u32]) -> Result<Array> {
    require_elements("the array", array)?;
    let length = array.shape().first().copied().unwrap_or(0);
    if let Some(&index) = indices.iter().find(|&&index| index as usize >= length) {
        return Err(Error::Index { index, length });
    }
    if indices.is_empty() {
        return Err(Error::Empty {
            argument: "indices",
            shape: vec![0],
        });
    }
    let raw = sys::take_rows(array.raw()?, indices, stream::current()?)?;
    Array::computed(raw, &[array])
}

/// The entries of a dimension at these indices, which stay on the device. For an array of shape `[a, n, b]` and indices
/// of shape `[s, t]` along dimension 1, the result is `[a, s, t, b]`.
///
/// Indices are integers of any type; negative ones count from the end. An index out of range cannot be detected without
/// waiting for it: past the end it selects the last entry, and before the beginning the first.
///
/// ```
/// # use mlx_overlay::{Array, argmax, take};
/// # fn main() -> mlx_overlay::Result<()> {
/// let embeddings = Array::from_slice(&[0.0f32, 0.1, 1.0, 1.1], &[2, 2])?;
/// let token = argmax(&Array::from_slice(&[-1.0f32, 3.0], &[1, 2])?)?;
/// assert_eq!(take(&embeddings, &token, 0)?.to_vec::<f32>()?, [1.0, 1.1]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::Axis`]; [`Error::Dtype`] for indices that are not integers; [`Error::Empty`]; MLX's.
pub fn take(array: &Array, indices: &Array, axis: isize) -> Result<Array> {
    require_elements("the array", array)?;
    require_elements("indices", indices)?;
    require_integer("indices", indices)?;
    // It cannot have 2^31 dimensions.
    let axis = dimension("the array", array, axis)? as i32;
    let raw = sys::take(array.raw()?, indices.raw()?, axis, stream::current()?)?;
    Array::computed(raw, &[array, indices])
}

/// MLX would clamp a range that is not within the array.
fn bounds(array: &Array, ranges: &[Range<usize>]) -> Result<(Vec<i32>, Vec<i32>)> {
    let within = ranges.len() == array.shape().len()
        && ranges
            .iter()
            .zip(array.shape())
            .all(|(range, &extent)| range.start < range.end && range.end <= extent);
    if !within {
        return Err(shape_error(
            "the array",
            array,
            format!("a shape that contains the ranges {ranges:?}, none of them empty"),
        ));
    }
    let starts: Vec<usize> = ranges.iter().map(|range| range.start).collect();
    let stops: Vec<usize> = ranges.iter().map(|range| range.end).collect();
    Ok((extents(&starts)?, extents(&stops)?))
}
