//! Normalizations along the last dimension.

use mlx_overlay_sys as sys;

use crate::array::references;
use crate::ops::{require_floats, shape_error};
use crate::{Array, Result, stream};

/// `x` divided by its root mean square along the last dimension, times `weight`, which has that
/// dimension. `eps` is added to the mean square. A NaN makes all of its row NaN.
///
/// ```
/// # use mlx_overlay::{Array, rms_norm};
/// # fn main() -> mlx_overlay::Result<()> {
/// // The mean square is 4.
/// let x = Array::from_slice(&[2.0f32, -2.0], &[1, 2])?;
/// let weight = Array::from_slice(&[1.0f32, 10.0], &[2])?;
/// assert_eq!(rms_norm(&x, &weight, 0.0)?.to_vec::<f32>()?, [1.0, -10.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`crate::Error::Dtype`], [`crate::Error::Empty`]; MLX's.
pub fn rms_norm(x: &Array, weight: &Array, eps: f32) -> Result<Array> {
    require_floats(&[("x", x), ("weight", weight)])?;
    let raw = sys::rms_norm(x.raw()?, weight.raw()?, eps, stream::current()?)?;
    Array::computed(raw, &[x, weight])
}

/// `x` minus its mean, divided by its deviation along the last dimension, times `weight`, plus `bias`. Both are optional
/// and have that dimension. `eps` is added to the variance. A NaN makes all of its row NaN.
///
/// ```
/// # use mlx_overlay::{Array, layer_norm};
/// # fn main() -> mlx_overlay::Result<()> {
/// let x = Array::from_slice(&[1.0f32, 3.0], &[1, 2])?;
/// let bias = Array::from_slice(&[10.0f32, 20.0], &[2])?;
/// assert_eq!(layer_norm(&x, None, Some(&bias), 0.0)?.to_vec::<f32>()?, [9.0, 21.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`crate::Error::Dtype`], [`crate::Error::Empty`]; [`crate::Error::Shape`] unless weight and bias have the last
/// dimension of `x`; MLX's.
pub fn layer_norm(
    x: &Array,
    weight: Option<&Array>,
    bias: Option<&Array>,
    eps: f32,
) -> Result<Array> {
    require_floats(&[("x", x)])?;
    let last = x.shape().last().copied();
    let Some(last) = last else {
        return Err(shape_error("x", x, "at least one dimension".to_owned()));
    };
    for (argument, array) in [("weight", weight), ("bias", bias)] {
        let Some(array) = array else { continue };
        require_floats(&[(argument, array)])?;
        if array.shape() != [last] {
            return Err(shape_error(
                argument,
                array,
                format!("[{last}], as the rows of x"),
            ));
        }
    }
    let weights: Vec<&Array> = weight.into_iter().collect();
    let biases: Vec<&Array> = bias.into_iter().collect();
    let raw = sys::layer_norm(
        x.raw()?,
        &references(&weights)?,
        &references(&biases)?,
        eps,
        stream::current()?,
    )?;
    let inputs: Vec<&Array> = [x].into_iter().chain(weights).chain(biases).collect();
    Array::computed(raw, &inputs)
}
