//! Random numbers from keys.
//!
//! A key is an array of two u32. The same key gives the same numbers, so a server's samples can be reproduced. Use a new
//! key each time; [`split`] makes them.
//!
//! ```
//! use mlx_overlay::{Array, random, slice, reshape};
//!
//! # fn main() -> mlx_overlay::Result<()> {
//! let logits = Array::from_slice(&[0.0f32, f32::NEG_INFINITY, 0.0, 0.0], &[1, 4])?;
//! let keys = random::split(&random::key(7)?, 2)?;
//! let key = reshape(&slice(&keys, &[1..2, 0..2])?, &[2])?;
//! let token = random::categorical(&logits, &key)?.to_vec::<u32>()?;
//! assert_eq!(token, random::categorical(&logits, &key)?.to_vec::<u32>()?);
//! assert_ne!(token, [1]);
//! # Ok(())
//! # }
//! ```

use mlx_overlay_sys as sys;

use crate::ops::{
    elements, extent, extents, require_dtype, require_elements, require_float, require_float_type,
    shape_error,
};
use crate::{Array, Dtype, Error, Result, stream};

/// The key for a seed.
///
/// # Errors
///
/// [`Error::ThreadEnding`] or [`Error::ProcessEnding`].
pub fn key(seed: u64) -> Result<Array> {
    // As in MLX: the upper half first.
    Array::from_slice(&[(seed >> 32) as u32, seed as u32], &[2])
}

/// Makes `count` keys from one: `[count, 2]`.
///
/// # Errors
///
/// [`Error::Dtype`] or [`Error::Shape`] if `key` is not a key; [`Error::Empty`] if `count` is 0; [`Error::TooLarge`];
/// MLX's.
pub fn split(key: &Array, count: usize) -> Result<Array> {
    require_key(key)?;
    if count == 0 {
        return Err(Error::Empty {
            argument: "the keys",
            shape: vec![0, 2],
        });
    }
    let raw = sys::random_split(key.raw()?, extent(count, &[count, 2])?, stream::current()?)?;
    Array::computed(raw, &[key])
}

/// Numbers from `low` (included) to `high` (excluded), of a floating-point type. Rounding can give `high` itself, mainly
/// in f16 and bf16. If `low` is above `high`, the numbers are still between the two. Bounds that are not finite give
/// infinities or NaN.
///
/// ```
/// # use mlx_overlay::{Dtype, random};
/// # fn main() -> mlx_overlay::Result<()> {
/// let numbers = random::uniform(&[100], 2.0, 3.0, Dtype::F32, &random::key(1)?)?;
/// assert!(numbers.to_vec::<f32>()?.iter().all(|x| (2.0..3.0).contains(x)));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::Dtype`] or [`Error::Shape`] if `key` is not a key, [`Error::Dtype`] for another type; [`Error::Empty`],
/// [`Error::TooLarge`]; MLX's.
pub fn uniform(shape: &[usize], low: f32, high: f32, dtype: Dtype, key: &Array) -> Result<Array> {
    require_key(key)?;
    require_float_type("the result", dtype)?;
    if elements(shape) == Some(0) {
        return Err(Error::Empty {
            argument: "the result",
            shape: shape.to_vec(),
        });
    }
    let raw = sys::random_uniform(
        &extents(shape)?,
        low,
        high,
        dtype.raw(),
        key.raw()?,
        stream::current()?,
    )?;
    Array::computed(raw, &[key])
}

/// For each row of logits (`[.., n]`), an index (u32) below `n`, drawn with the probabilities of the row's softmax. The
/// result lacks the last dimension. Divide the logits by the temperature first.
///
/// An index whose logit is negative infinity is not drawn if the row has other logits, with one exception: for a single
/// row MLX sums probabilities, and rounding can make it draw the last index. So mask the result again. A row with a NaN
/// can give any number, even one of `n` or more.
///
/// # Errors
///
/// [`Error::Dtype`] or [`Error::Shape`] if `key` is not a key, [`Error::Shape`] for a scalar, [`Error::Dtype`],
/// [`Error::Empty`]; MLX's.
pub fn categorical(logits: &Array, key: &Array) -> Result<Array> {
    require_key(key)?;
    require_float("logits", logits)?;
    require_elements("logits", logits)?;
    if logits.shape().is_empty() {
        return Err(shape_error("logits", logits, "[.., n]".to_owned()));
    }
    let raw = sys::random_categorical(logits.raw()?, key.raw()?, stream::current()?)?;
    Array::computed(raw, &[logits, key])
}

fn require_key(key: &Array) -> Result<()> {
    require_dtype("the key", key, Dtype::U32)?;
    if key.shape() == [2] {
        Ok(())
    } else {
        Err(shape_error("the key", key, "[2]".to_owned()))
    }
}
