//! Attention.

use mlx_overlay_sys as sys;

#[cfg(doc)]
use crate::Error;
use crate::array::references;
use crate::ops::{broadcast, require_elements, require_float, require_floats, shape_error};
use crate::{Array, Dtype, Result, stream};

/// Which keys a query sees.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub enum Mask<'a> {
    /// Every query sees all keys.
    #[default]
    None,
    /// The last query sees all keys, and each earlier one sees one key less. Under a policy, a row of a block is computed
    /// over the keys that it sees, like a single row.
    Causal,
    /// An array that broadcasts to `[batch, heads, rows, positions]`. A floating-point array is added to the scores; its
    /// type must promote to the result's. A bool array is true for the keys that are seen. The result of a row that sees
    /// no key depends on the device and the shapes (0, the mean of all values or NaN): do not use it. Under a policy, a
    /// row of a block is computed over all keys with its own row of the mask.
    Array(&'a Array),
}

/// Scaled dot-product attention of queries (`[batch, heads, rows, dims]`) over keys (`[batch, kv_heads, positions,
/// dims]`) and values (`[batch, kv_heads, positions, value_dims]`): `[batch, heads, rows, value_dims]`. `heads` is a
/// multiple of `kv_heads`. `sinks` (`[heads]`) has one score per head, which takes part in the softmax but has no value.
///
/// A NaN in a query or in a visible key makes the row NaN; a NaN in a visible value makes that element of the row NaN.
/// A NaN in a masked value can do so too, because kernels multiply it by 0, and so can a NaN in a key that a
/// floating-point mask hides, because its score stays NaN.
///
/// ```
/// # use mlx_overlay::{Array, Mask, attention};
/// # fn main() -> mlx_overlay::Result<()> {
/// let queries = Array::full(&[1, 1, 1, 2], 1.0f32)?;
/// let keys = Array::full(&[1, 1, 2, 2], 1.0f32)?;
/// let values = Array::from_slice(&[1.0f32, 1.0, 5.0, 5.0], &[1, 1, 2, 2])?;
/// let first = Array::from_slice(&[true, false], &[1, 2])?;
/// let seen = attention(&queries, &keys, &values, 0.5, Mask::Array(&first), None)?;
/// assert_eq!(seen.to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::Dtype`], [`Error::Empty`]; [`Error::Shape`] for arrays of other dimensions, for more rows than keys under
/// [`Mask::Causal`], and for a mask that does not broadcast; MLX's, if the shapes do not fit.
pub fn attention(
    queries: &Array,
    keys: &Array,
    values: &Array,
    scale: f32,
    mask: Mask<'_>,
    sinks: Option<&Array>,
) -> Result<Array> {
    require_floats(&[("queries", queries), ("keys", keys), ("values", values)])?;
    for (argument, array) in [("queries", queries), ("keys", keys), ("values", values)] {
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
                "at most {positions} rows, the number of keys: a causal row sees its own key and those before it"
            ),
        ));
    }
    let mut masks = Vec::new();
    if let Mask::Array(mask) = mask {
        if mask.dtype() != Dtype::Bool {
            require_float("mask", mask)?;
        }
        require_elements("mask", mask)?;
        let scores = [&queries.shape()[..3], &[positions]].concat();
        if broadcast(mask.shape(), &scores).as_ref() != Some(&scores) {
            let expected = format!("a shape that broadcasts to {scores:?}");
            return Err(shape_error("mask", mask, expected));
        }
        masks.push(mask);
    }
    if let Some(sinks) = sinks {
        require_float("sinks", sinks)?;
        let heads = queries.shape()[1];
        if sinks.shape() != [heads] {
            return Err(shape_error("sinks", sinks, format!("[{heads}]")));
        }
    }
    let sinks: Vec<&Array> = sinks.into_iter().collect();
    let raw = sys::attention(
        &references(&[queries, keys, values])?,
        scale,
        matches!(mask, Mask::Causal),
        &references(&masks)?,
        &references(&sinks)?,
        stream::current()?,
    )?;
    let inputs: Vec<&Array> = [queries, keys, values]
        .into_iter()
        .chain(masks)
        .chain(sinks)
        .collect();
    Array::computed(raw, &inputs)
}
