//! Operations element by element. Shapes broadcast, and types are promoted ([`crate`]).

use mlx_overlay_sys::{self as sys, Comparison};

use super::{require_dtype, require_elements, require_floats};
use crate::{Array, Dtype, Result, stream};

/// The element-wise sum; shapes broadcast, and [types are promoted](crate#types). Integers wrap around.
///
/// ```
/// # use mlx_overlay::{Array, add};
/// # fn main() -> mlx_overlay::Result<()> {
/// let a = Array::from_slice(&[1.0f32, 2.0], &[2, 1])?;
/// let b = Array::from_slice(&[10.0f32, 20.0], &[2])?;
/// assert_eq!(add(&a, &b)?.to_vec::<f32>()?, [11.0, 21.0, 12.0, 22.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`crate::Error::Empty`]; MLX's, if the shapes do not broadcast.
pub fn add(a: &Array, b: &Array) -> Result<Array> {
    require_elements("a", a)?;
    require_elements("b", b)?;
    let raw = sys::add(a.raw()?, b.raw()?, stream::current()?)?;
    Array::computed(raw, &[a, b])
}

/// The element-wise product; shapes broadcast, and [types are promoted](crate#types). Integers wrap around.
///
/// ```
/// # use mlx_overlay::{Array, multiply};
/// # fn main() -> mlx_overlay::Result<()> {
/// let a = Array::from_slice(&[1.0f32, 2.0], &[2])?;
/// assert_eq!(multiply(&a, &a)?.to_vec::<f32>()?, [1.0, 4.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`crate::Error::Empty`]; MLX's, if the shapes do not broadcast.
pub fn multiply(a: &Array, b: &Array) -> Result<Array> {
    require_elements("a", a)?;
    require_elements("b", b)?;
    let raw = sys::multiply(a.raw()?, b.raw()?, stream::current()?)?;
    Array::computed(raw, &[a, b])
}

/// The logistic function of each element.
///
/// # Errors
///
/// [`crate::Error::Dtype`] unless it is floating-point, [`crate::Error::Empty`]; MLX's.
pub fn sigmoid(array: &Array) -> Result<Array> {
    require_floats(&[("the array", array)])?;
    let raw = sys::sigmoid(array.raw()?, stream::current()?)?;
    Array::computed(raw, &[array])
}

macro_rules! comparisons {
    ($($name:ident $how:ident $about:literal $expected:literal;)*) => {$(
        #[doc = $about]
        ///
        /// Returns a bool array. Shapes broadcast, and elements are compared in [the type to which theirs are
        /// promoted](crate#types). A NaN is not equal to anything, itself included, and neither less nor greater.
        ///
        /// ```
        #[doc = concat!("# use mlx_overlay::{Array, ", stringify!($name), "};")]
        /// # fn main() -> mlx_overlay::Result<()> {
        /// let a = Array::from_slice(&[1.0f32, 2.0, 3.0, f32::NAN], &[4])?;
        /// let two = Array::full(&[], 2.0f32)?;
        #[doc = concat!("let found = ", stringify!($name), "(&a, &two)?.to_vec::<bool>()?;")]
        #[doc = concat!("assert_eq!(found, ", $expected, ");")]
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// # Errors
        ///
        /// [`crate::Error::Empty`]; MLX's, if the shapes do not broadcast.
        pub fn $name(a: &Array, b: &Array) -> Result<Array> {
            compare(a, b, Comparison::$how)
        }
    )*};
}

comparisons! {
    equal Equal "Whether the elements are equal." "[false, true, false, false]";
    not_equal NotEqual "Whether the elements are not equal." "[true, false, true, true]";
    less Less "Whether the elements of `a` are less." "[true, false, false, false]";
    less_equal LessEqual "Whether the elements of `a` are less or equal." "[true, true, false, false]";
    greater Greater "Whether the elements of `a` are greater." "[false, false, true, false]";
    greater_equal GreaterEqual "Whether the elements of `a` are greater or equal." "[false, true, true, false]";
}

fn compare(a: &Array, b: &Array, how: Comparison) -> Result<Array> {
    require_elements("a", a)?;
    require_elements("b", b)?;
    let raw = sys::compare(a.raw()?, b.raw()?, how, stream::current()?)?;
    Array::computed(raw, &[a, b])
}

/// The elements of `a` where the condition (bool) is true, and those of `b` elsewhere. Shapes broadcast, and [the types
/// of `a` and `b` are promoted](crate#types).
///
/// ```
/// # use mlx_overlay::{Array, where_};
/// # fn main() -> mlx_overlay::Result<()> {
/// let allowed = Array::from_slice(&[true, false], &[2])?;
/// let logits = Array::from_slice(&[1.0f32, 2.0], &[2])?;
/// let never = Array::full(&[], f32::NEG_INFINITY)?;
/// let masked = where_(&allowed, &logits, &never)?;
/// assert_eq!(masked.to_vec::<f32>()?, [1.0, f32::NEG_INFINITY]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`crate::Error::Dtype`] unless the condition is bool, [`crate::Error::Empty`]; MLX's, if the shapes do not
/// broadcast.
pub fn where_(condition: &Array, a: &Array, b: &Array) -> Result<Array> {
    require_dtype("condition", condition, Dtype::Bool)?;
    for (argument, array) in [("condition", condition), ("a", a), ("b", b)] {
        require_elements(argument, array)?;
    }
    let raw = sys::select(condition.raw()?, a.raw()?, b.raw()?, stream::current()?)?;
    Array::computed(raw, &[condition, a, b])
}
