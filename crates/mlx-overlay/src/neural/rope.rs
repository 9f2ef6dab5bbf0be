//! Rotary position embeddings.

use mlx_overlay_sys::{self as sys, Rotation};

use crate::array::references;
use crate::ops::{
    extent, require_elements, require_float, require_floats, require_integer, shape_error,
};
use crate::{Array, Dtype, Error, Result, stream};

/// A rotary position embedding that rotates the two halves of the last dimension against each
/// other. [`RopeOptions`] offers more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// How much of the last dimension is rotated, from its start; even.
    pub dims: usize,
    /// Base of the frequencies.
    pub base: f32,
}

/// Rotates `x` (`[.., positions, dims]`); its first position is `offset`.
///
/// ```
/// # use mlx_overlay::{Array, Rope, rope};
/// # fn main() -> mlx_overlay::Result<()> {
/// let x = Array::from_slice(&[1.0f32, 0.0], &[1, 1, 2])?;
/// let how = Rope { dims: 2, base: 10_000.0 };
/// // Position 0 stays, and position 1 is rotated by an angle of 1.
/// assert_eq!(rope(&x, how, 0)?.to_vec::<f32>()?, [1.0, 0.0]);
/// let rotated = rope(&x, how, 1)?.to_vec::<f32>()?;
/// assert!((rotated[0] - 1f32.cos()).abs() < 1e-6 && (rotated[1] - 1f32.sin()).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Those of [`rope_with`].
pub fn rope(x: &Array, rope: Rope, offset: usize) -> Result<Array> {
    rope_with(
        x,
        &RopeOptions::new(rope.dims, Frequencies::Base(rope.base)),
        Positions::From(offset),
    )
}

/// All options of a rotary position embedding.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RopeOptions<'a> {
    /// How much of the last dimension is rotated, from its start; even.
    pub dims: usize,
    /// How fast each pair rotates.
    pub frequencies: Frequencies<'a>,
    /// Factor for positions. For linear scaling, the inverse of its factor.
    pub scale: f32,
    /// Whether the two elements of a pair are adjacent, instead of in the two halves of the rotated part.
    pub side_by_side: bool,
}

impl<'a> RopeOptions<'a> {
    /// No scaling, and pairs in the two halves.
    pub fn new(dims: usize, frequencies: Frequencies<'a>) -> Self {
        Self {
            dims,
            frequencies,
            scale: 1.0,
            side_by_side: false,
        }
    }
}

/// How fast each pair of a [`RopeOptions`] rotates.
#[derive(Debug, Clone)]
pub enum Frequencies<'a> {
    /// Pair `i` rotates by an angle of `base ^ (-2 i / dims)` per position.
    Base(f32),
    /// Pair `i` rotates by an angle of 1 over element `i` of this array (`[dims / 2]`) per position: wave lengths, as
    /// modified by YaRN and Llama 3.
    Periods(&'a Array),
}

/// The first positions of sequences.
#[derive(Debug, Clone, Copy)]
pub enum Positions<'a> {
    /// All sequences start at this position.
    From(usize),
    /// Each sequence starts at its own position: an array of integers (`[batch]`, the first dimension of `x`), on the
    /// device. Values of more than 31 bits wrap around.
    Each(&'a Array),
}

/// Rotates `x` (`[batch, .., positions, dims]`) by its positions.
///
/// ```
/// # use mlx_overlay::{Array, Frequencies, Positions, RopeOptions, rope_with};
/// # fn main() -> mlx_overlay::Result<()> {
/// // Two sequences of one position: the first at position 0, the second at 5.
/// let x = Array::full(&[2, 1, 1, 8], 1.0f32)?;
/// let offsets = Array::from_slice(&[0, 5], &[2])?;
/// let options = RopeOptions::new(8, Frequencies::Base(10_000.0));
/// let rotated = rope_with(&x, &options, Positions::Each(&offsets))?.to_vec::<f32>()?;
/// assert_eq!(rotated[..8], [1.0; 8]);
/// assert_ne!(rotated[8..], [1.0; 8]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`crate::Error::Dtype`], [`crate::Error::Empty`], [`crate::Error::Shape`], [`crate::Error::TooLarge`] or
/// [`crate::Error::Position`]; MLX's.
pub fn rope_with(x: &Array, options: &RopeOptions<'_>, positions: Positions<'_>) -> Result<Array> {
    require_float("x", x)?;
    require_elements("x", x)?;
    let dims = options.dims;
    let wide_enough = x.shape().last().is_some_and(|&last| last >= dims);
    if x.shape().len() < 3 || !wide_enough || dims == 0 || !dims.is_multiple_of(2) {
        return Err(shape_error(
            "x",
            x,
            format!("at least three dimensions, the last even and at least {dims}"),
        ));
    }
    let periods: Vec<&Array> = match options.frequencies {
        Frequencies::Base(_) => Vec::new(),
        Frequencies::Periods(periods) => {
            require_floats(&[("the periods", periods)])?;
            if periods.shape() != [dims / 2] {
                let expected = format!("[{}], one per pair", dims / 2);
                return Err(shape_error("the periods", periods, expected));
            }
            vec![periods]
        }
    };
    let offsets = match positions {
        Positions::From(offset) => {
            let offset = i32::try_from(offset).map_err(|_| Error::Position { position: offset })?;
            Array::from_slice(&[offset], &[])?
        }
        Positions::Each(offsets) => {
            let sequences = x.shape()[0];
            require_integer("the positions", offsets)?;
            if offsets.shape() != [sequences] {
                let expected = format!("[{sequences}], one per sequence");
                return Err(shape_error("the positions", offsets, expected));
            }
            // MLX reads 4-byte integers unconverted, as signed ones.
            if offsets.dtype() == Dtype::U32 {
                crate::as_type(offsets, Dtype::I32)?
            } else {
                offsets.clone()
            }
        }
    };
    let rotation = Rotation {
        dims: extent(dims, x.shape())?,
        traditional: options.side_by_side,
        base: match options.frequencies {
            Frequencies::Base(base) => base,
            Frequencies::Periods(_) => 0.0,
        },
        scale: options.scale,
    };
    let raw = sys::rope(
        x.raw()?,
        &rotation,
        &references(&periods)?,
        offsets.raw()?,
        stream::current()?,
    )?;
    let inputs: Vec<&Array> = [x, &offsets].into_iter().chain(periods).collect();
    Array::computed(raw, &inputs)
}
