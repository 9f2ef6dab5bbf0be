//! What a transformer needs besides products.

use std::ops::Range;

use mlx_overlay_sys::{self as sys, ArrayRef};

use crate::ops::{require_elements, require_float, shape_error};
use crate::{Array, Dtype, Error, Result, stream};

/// The array with its elements converted to a type.
///
/// # Errors
///
/// [`Error::Empty`]; MLX's.
pub fn as_type(array: &Array, dtype: Dtype) -> Result<Array> {
    require_elements("the array", array)?;
    Array::from_raw(sys::as_type(array.raw()?, dtype.raw(), stream::current()?)?)
}

/// The same elements, row-major, in another shape.
///
/// # Errors
///
/// [`Error::Length`] if the elements do not fill it, [`Error::TooLarge`], [`Error::Empty`]; MLX's.
pub fn reshape(array: &Array, shape: &[usize]) -> Result<Array> {
    require_elements("the array", array)?;
    let elements = shape.iter().try_fold(1usize, |n, &e| n.checked_mul(e));
    if elements != Some(array.len()) {
        return Err(Error::Length {
            elements: array.len(),
            shape: shape.to_vec(),
        });
    }
    Array::from_raw(sys::reshape(
        array.raw()?,
        &extents(shape)?,
        stream::current()?,
    )?)
}

/// The array with its dimensions in this order: dimension `i` of the result is `axes[i]` of the
/// array.
///
/// # Errors
///
/// [`Error::TooLarge`]; MLX's, unless `axes` names each dimension once.
pub fn transpose_axes(array: &Array, axes: &[usize]) -> Result<Array> {
    Array::from_raw(sys::transpose_axes(
        array.raw()?,
        &extents(axes)?,
        stream::current()?,
    )?)
}

/// The elements of the array within these ranges, one for each dimension.
///
/// # Errors
///
/// [`Error::Shape`] for a range that is empty or not within the array.
pub fn slice(array: &Array, ranges: &[Range<usize>]) -> Result<Array> {
    let (start, stop) = bounds(array, ranges)?;
    Array::from_raw(sys::slice(array.raw()?, &start, &stop, stream::current()?)?)
}

/// The array with the elements within these ranges replaced. `update` has their shape.
///
/// MLX writes in place if nothing else holds the array when this is evaluated: drop it before.
///
/// # Errors
///
/// [`Error::Shape`] for a range that is empty or not within the array, or an update of another
/// shape, [`Error::Dtype`] for one of another type; MLX's.
pub fn slice_update(array: &Array, update: &Array, ranges: &[Range<usize>]) -> Result<Array> {
    let (start, stop) = bounds(array, ranges)?;
    let shape: Vec<usize> = ranges.iter().map(Range::len).collect();
    if update.shape() != shape {
        return Err(shape_error(
            "update",
            update,
            format!("{shape:?}, that of the ranges"),
        ));
    }
    crate::ops::require_dtype("update", update, array.dtype())?;
    Array::from_raw(sys::slice_update(
        array.raw()?,
        update.raw()?,
        &start,
        &stop,
        stream::current()?,
    )?)
}

/// The entries of the first dimension at these indices, in their order.
///
/// # Errors
///
/// [`Error::Index`] for one that is not there, [`Error::Empty`]; MLX's.
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
    Array::from_raw(sys::take_rows(array.raw()?, indices, stream::current()?)?)
}

/// The sum, element by element; shapes broadcast, and the wider type wins.
///
/// # Errors
///
/// [`Error::Empty`]; MLX's, if the shapes do not broadcast.
pub fn add(a: &Array, b: &Array) -> Result<Array> {
    require_elements("a", a)?;
    require_elements("b", b)?;
    Array::from_raw(sys::add(a.raw()?, b.raw()?, stream::current()?)?)
}

/// The product, element by element; shapes broadcast, and the wider type wins.
///
/// # Errors
///
/// [`Error::Empty`]; MLX's, if the shapes do not broadcast.
pub fn multiply(a: &Array, b: &Array) -> Result<Array> {
    require_elements("a", a)?;
    require_elements("b", b)?;
    Array::from_raw(sys::multiply(a.raw()?, b.raw()?, stream::current()?)?)
}

/// The logistic function of each element.
///
/// # Errors
///
/// [`Error::Dtype`] unless it is of floating point, [`Error::Empty`]; MLX's.
pub fn sigmoid(array: &Array) -> Result<Array> {
    require_float("the array", array)?;
    require_elements("the array", array)?;
    Array::from_raw(sys::sigmoid(array.raw()?, stream::current()?)?)
}

/// Where the largest element lies along the last dimension, which is gone in the result: u32. The
/// first of equal ones.
///
/// # Errors
///
/// [`Error::Empty`]; MLX's.
pub fn argmax(array: &Array) -> Result<Array> {
    require_elements("the array", array)?;
    Array::from_raw(sys::argmax(array.raw()?, stream::current()?)?)
}

/// `x` divided by its root mean square along the last dimension, times `weight`, which has that
/// dimension.
///
/// # Errors
///
/// [`Error::Dtype`], [`Error::Empty`]; MLX's.
pub fn rms_norm(x: &Array, weight: &Array, eps: f32) -> Result<Array> {
    for (argument, array) in [("x", x), ("weight", weight)] {
        require_float(argument, array)?;
        require_elements(argument, array)?;
    }
    Array::from_raw(sys::rms_norm(
        x.raw()?,
        weight.raw()?,
        eps,
        stream::current()?,
    )?)
}

/// A rotary position embedding that rotates the two halves of the last dimension against each
/// other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// Leading part of the last dimension that is rotated; even.
    pub dims: usize,
    /// Base of the frequencies.
    pub base: f32,
}

/// Rotates `x` (`[.., positions, dims]`), whose first position is `offset`.
///
/// # Errors
///
/// [`Error::Dtype`], [`Error::Empty`], [`Error::Shape`] or [`Error::TooLarge`]; MLX's.
pub fn rope(x: &Array, rope: Rope, offset: usize) -> Result<Array> {
    require_float("x", x)?;
    require_elements("x", x)?;
    let wide_enough = x.shape().last().is_some_and(|&last| last >= rope.dims);
    if x.shape().len() < 3 || !wide_enough || rope.dims == 0 || !rope.dims.is_multiple_of(2) {
        return Err(shape_error(
            "x",
            x,
            format!(
                "three dimensions or more, of which the last is {} or more, an even number",
                rope.dims
            ),
        ));
    }
    Array::from_raw(sys::rope(
        x.raw()?,
        extent(rope.dims, x.shape())?,
        rope.base,
        extent(offset, &[offset])?,
        stream::current()?,
    )?)
}

/// The exponentials of the elements along the last dimension, divided by their sum, which is taken in float32.
///
/// # Errors
///
/// [`Error::Dtype`] unless it is of floating point, [`Error::Empty`]; MLX's.
pub fn softmax(array: &Array) -> Result<Array> {
    require_float("the array", array)?;
    require_elements("the array", array)?;
    Array::from_raw(sys::softmax(array.raw()?, stream::current()?)?)
}

/// Which keys a query sees.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub enum Mask<'a> {
    /// Every query sees all keys.
    #[default]
    None,
    /// The last query sees all keys, each one before it one less. Under a policy a row of a block is computed over the
    /// keys that it sees, as a single row is.
    Causal,
    /// This array is added to the scores: of floating point, not wider than the result, and of a shape that broadcasts
    /// to `[batch, heads, rows, positions]`. Under a policy a row of a block is computed over all keys with its own
    /// row of the mask.
    Array(&'a Array),
}

/// Scaled dot-product attention of queries (`[batch, heads, rows, dims]`) over keys (`[batch, kv_heads, positions,
/// dims]`) and values (`[batch, kv_heads, positions, value_dims]`): `[batch, heads, rows, value_dims]`. `heads` is a
/// multiple of `kv_heads`. `sinks` (`[heads]`) has a score for each head that takes part in the softmax and has no value.
///
/// # Errors
///
/// [`Error::Dtype`], [`Error::Empty`]; [`Error::Shape`] for arrays of other dimensions and for more rows than keys
/// under [`Mask::Causal`]; MLX's, if the shapes do not fit.
pub fn attention(
    queries: &Array,
    keys: &Array,
    values: &Array,
    scale: f32,
    mask: Mask<'_>,
    sinks: Option<&Array>,
) -> Result<Array> {
    for (argument, array) in [("queries", queries), ("keys", keys), ("values", values)] {
        require_float(argument, array)?;
        require_elements(argument, array)?;
        if array.shape().len() != 4 {
            return Err(shape_error(
                argument,
                array,
                "[batch, heads, rows, dims]".to_owned(),
            ));
        }
    }
    let positions = keys.shape()[2];
    if positions != values.shape()[2] {
        return Err(shape_error(
            "values",
            values,
            format!("{positions} positions, as the keys have"),
        ));
    }
    if matches!(mask, Mask::Causal) && queries.shape()[2] > positions {
        return Err(shape_error(
            "queries",
            queries,
            format!(
                "at most {positions} rows, as there are keys: a causal row sees its own key and those before it"
            ),
        ));
    }
    let mut added = Vec::new();
    if let Mask::Array(mask) = mask {
        require_float("mask", mask)?;
        require_elements("mask", mask)?;
        added.push(ArrayRef { array: mask.raw()? });
    }
    let mut beside = Vec::new();
    if let Some(sinks) = sinks {
        require_float("sinks", sinks)?;
        let heads = queries.shape()[1];
        if sinks.shape() != [heads] {
            return Err(shape_error("sinks", sinks, format!("[{heads}]")));
        }
        beside.push(ArrayRef {
            array: sinks.raw()?,
        });
    }
    let parts = [queries, keys, values]
        .map(|array| array.raw().map(|array| ArrayRef { array }))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    Array::from_raw(sys::attention(
        &parts,
        scale,
        matches!(mask, Mask::Causal),
        &added,
        &beside,
        stream::current()?,
    )?)
}

fn extent(value: usize, shape: &[usize]) -> Result<i32> {
    i32::try_from(value).map_err(|_| Error::TooLarge {
        what: "each extent",
        shape: shape.to_vec(),
    })
}

fn extents(values: &[usize]) -> Result<Vec<i32>> {
    values.iter().map(|&value| extent(value, values)).collect()
}

/// MLX clamps a range that is not within the array.
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
            format!("room for the ranges {ranges:?}, none of them empty"),
        ));
    }
    let starts: Vec<usize> = ranges.iter().map(|range| range.start).collect();
    let stops: Vec<usize> = ranges.iter().map(|range| range.end).collect();
    Ok((extents(&starts)?, extents(&stops)?))
}
