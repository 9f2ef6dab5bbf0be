//! Operations along a dimension. Negative dimension numbers count from the end.

use mlx_overlay_sys as sys;

use super::{dimension, require_elements, require_floats, shape_error};
use crate::{Array, Dtype, Error, Result, stream};

/// The index (u32) of the largest element along the last dimension, which the result lacks. Of equal elements, the
/// first.
///
/// NaN counts as largest, and the index does not show it: a token chosen from logits with a NaN looks like any other.
/// If that matters, check `equal(logits, logits)`, which is false for a NaN.
///
/// # Errors
///
/// [`Error::Empty`]; MLX's, for a scalar.
pub fn argmax(array: &Array) -> Result<Array> {
    require_elements("the array", array)?;
    let raw = sys::argmax(array.raw()?, stream::current()?)?;
    Array::computed(raw, &[array])
}

/// The exponentials of the elements along the last dimension, divided by their sum, which is computed in float32.
///
/// A NaN makes its whole row NaN, and so does a row of only negative infinity.
///
/// # Errors
///
/// [`Error::Dtype`] unless it is floating-point, [`Error::Empty`]; [`Error::Axis`] for a scalar; MLX's.
pub fn softmax(array: &Array) -> Result<Array> {
    softmax_along(array, -1)
}

/// [`softmax`] along any dimension.
///
/// ```
/// # use mlx_overlay::{Array, softmax_along};
/// # fn main() -> mlx_overlay::Result<()> {
/// let a = Array::from_slice(&[1.0f32, 2.0, 1.0, 2.0], &[2, 2])?;
/// assert_eq!(softmax_along(&a, 0)?.to_vec::<f32>()?, [0.5; 4]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Those of [`softmax`]; [`Error::Axis`].
pub fn softmax_along(array: &Array, axis: isize) -> Result<Array> {
    require_floats(&[("the array", array)])?;
    let axis = along(array, axis)?;
    let raw = sys::softmax(array.raw()?, axis, stream::current()?)?;
    Array::computed(raw, &[array])
}

/// The elements in ascending order along a dimension. NaN comes last.
///
/// ```
/// # use mlx_overlay::{Array, sort};
/// # fn main() -> mlx_overlay::Result<()> {
/// let a = Array::from_slice(&[3, 1, 2], &[3])?;
/// assert_eq!(sort(&a, -1)?.to_vec::<i32>()?, [1, 2, 3]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::Axis`], [`Error::Empty`]; [`Error::Dtype`] for bool, which has no kernels; MLX's.
pub fn sort(array: &Array, axis: isize) -> Result<Array> {
    require_number(array)?;
    let axis = along(array, axis)?;
    let raw = sys::sort(array.raw()?, axis, stream::current()?)?;
    Array::computed(raw, &[array])
}

/// The indices (u32) that partition a dimension. At `kth`, counted from 0, is the index of the element that sorting would
/// put there; before it are indices of elements that are not larger, after it of elements that are not smaller. NaN
/// counts as largest.
///
/// ```
/// # use mlx_overlay::{Array, argpartition, slice};
/// # fn main() -> mlx_overlay::Result<()> {
/// let logits = Array::from_slice(&[0.1f32, 0.9, 0.5, 0.7], &[4])?;
/// // The two largest, in any order.
/// let order = argpartition(&logits, 2, -1)?;
/// let mut largest = slice(&order, &[2..4])?.to_vec::<u32>()?;
/// largest.sort();
/// assert_eq!(largest, [1, 3]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Those of [`sort`]; [`Error::Shape`] if the dimension has no entry `kth`.
pub fn argpartition(array: &Array, kth: usize, axis: isize) -> Result<Array> {
    require_number(array)?;
    let axis = along(array, axis)?;
    if kth >= array.shape()[axis as usize] {
        return Err(shape_error(
            "the array",
            array,
            format!("more than {kth} entries along dimension {axis}"),
        ));
    }
    // Smaller than an extent, so it fits.
    let raw = sys::argpartition(array.raw()?, kth as i32, axis, stream::current()?)?;
    Array::computed(raw, &[array])
}

/// Cumulative sums along a dimension. A NaN makes all later sums NaN; integers wrap around. Bools are counted, as i32.
///
/// ```
/// # use mlx_overlay::{Array, cumsum};
/// # fn main() -> mlx_overlay::Result<()> {
/// let a = Array::from_slice(&[1.0f32, 2.0, 3.0], &[3])?;
/// assert_eq!(cumsum(&a, 0)?.to_vec::<f32>()?, [1.0, 3.0, 6.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::Axis`], [`Error::Empty`]; MLX's.
pub fn cumsum(array: &Array, axis: isize) -> Result<Array> {
    let axis = along(array, axis)?;
    let raw = sys::cumsum(array.raw()?, axis, stream::current()?)?;
    Array::computed(raw, &[array])
}

fn require_number(array: &Array) -> Result<()> {
    if array.dtype() == Dtype::Bool {
        return Err(Error::Dtype {
            argument: "the array",
            found: Dtype::Bool,
            expected: "a number type".to_owned(),
        });
    }
    Ok(())
}

/// MLX's number of a dimension.
fn along(array: &Array, axis: isize) -> Result<i32> {
    require_elements("the array", array)?;
    // MLX cannot have an array of 2^31 dimensions.
    dimension("the array", array, axis).map(|axis| axis as i32)
}
