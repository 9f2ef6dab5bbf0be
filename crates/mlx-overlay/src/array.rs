use std::fmt;
use std::rc::Rc;

use cxx::UniquePtr;
use mlx_overlay_sys::{self as sys, ArrayRef};

use crate::element::{Dtype, Element};
use crate::error::{Error, Result};
use crate::evaluated::Evaluated;
use crate::ops::{BYTES, elements, extents};
use crate::state::{self, State};
use crate::stream;

/// An MLX array: a node of a graph, evaluated when its contents are needed.
///
/// A clone is the same node. Neither `Send` nor `Sync`; see [`Evaluated`] for what is.
#[derive(Clone)]
pub struct Array {
    node: Rc<Node>,
}

struct Node {
    raw: UniquePtr<sys::Array>,
    shape: Vec<usize>,
    dtype: Dtype,
    state: Rc<State>,
}

impl Array {
    /// Copies elements into a new array, in row-major order.
    ///
    /// An extent may be 0, and a shape without extents is a scalar. Operations reject arrays
    /// without elements.
    ///
    /// ```
    /// # use mlx_overlay::Array;
    /// # fn main() -> mlx_overlay::Result<()> {
    /// let a = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(a.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if the elements do not fill the shape, [`Error::TooLarge`] if an extent is
    /// 2^31 or more, [`Error::OutOfMemory`].
    pub fn from_slice<T: Element>(values: &[T], shape: &[usize]) -> Result<Self> {
        if elements(shape) != Some(values.len()) {
            return Err(Error::Length {
                elements: values.len(),
                shape: shape.to_vec(),
            });
        }
        // SAFETY: an Element is plain memory without padding, so its bytes are initialized, and u8
        // has no alignment.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        Self::copied(bytes, shape, T::DTYPE)
    }

    /// Copies elements into a new array, given as bytes in this machine's layout and row-major order.
    ///
    /// ```
    /// # use mlx_overlay::{Array, Dtype};
    /// # fn main() -> mlx_overlay::Result<()> {
    /// let bytes = [1i16, -2].map(i16::to_ne_bytes).concat();
    /// let a = Array::from_bytes(&bytes, &[2], Dtype::I16)?;
    /// assert_eq!(a.to_vec::<i16>()?, [1, -2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Bytes`] if the bytes do not fill the shape, or if a byte of a bool is neither 0 nor 1;
    /// [`Error::TooLarge`] if an extent is 2^31 or more; [`Error::OutOfMemory`].
    pub fn from_bytes(bytes: &[u8], shape: &[usize], dtype: Dtype) -> Result<Self> {
        let expected = elements(shape).and_then(|count| count.checked_mul(dtype.size()));
        if expected != Some(bytes.len()) || !dtype.allows(bytes) {
            return Err(Error::Bytes {
                bytes: bytes.len(),
                shape: shape.to_vec(),
                dtype,
            });
        }
        Self::copied(bytes, shape, dtype)
    }

    /// An array whose elements are all 0, or `false`.
    ///
    /// ```
    /// # use mlx_overlay::{Array, Dtype};
    /// # fn main() -> mlx_overlay::Result<()> {
    /// let cache = Array::zeros(&[1, 2, 4, 8], Dtype::Bf16)?;
    /// assert_eq!(cache.len(), 64);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if an extent is 2^31 or more, [`Error::OutOfMemory`]; MLX's.
    pub fn zeros(shape: &[usize], dtype: Dtype) -> Result<Self> {
        let zero = vec![0; dtype.size()];
        Self::filled(shape, &zero, dtype)
    }

    /// An array whose elements all have this value.
    ///
    /// ```
    /// # use mlx_overlay::Array;
    /// # fn main() -> mlx_overlay::Result<()> {
    /// assert_eq!(Array::full(&[3], 7u16)?.to_vec::<u16>()?, [7, 7, 7]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if an extent is 2^31 or more, [`Error::OutOfMemory`]; MLX's.
    pub fn full<T: Element>(shape: &[usize], value: T) -> Result<Self> {
        // SAFETY: as in `from_slice`.
        let bytes = unsafe {
            std::slice::from_raw_parts(std::ptr::from_ref(&value).cast::<u8>(), size_of::<T>())
        };
        Self::filled(shape, bytes, T::DTYPE)
    }

    fn filled(shape: &[usize], value: &[u8], dtype: Dtype) -> Result<Self> {
        if elements(shape) == Some(0) {
            return Self::copied(&[], shape, dtype);
        }
        if elements(shape)
            .and_then(|count| count.checked_mul(value.len()))
            .is_none()
        {
            return Err(Error::TooLarge {
                what: BYTES,
                shape: shape.to_vec(),
            });
        }
        let value = sys::from_bytes(value, &[], dtype.raw())?;
        let raw = sys::full(&extents(shape)?, &value, stream::current()?)?;
        Self::computed(raw, &[])
    }

    fn copied(bytes: &[u8], shape: &[usize], dtype: Dtype) -> Result<Self> {
        Self::known(sys::from_bytes(bytes, &extents(shape)?, dtype.raw())?)
    }

    /// The extents of the dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.node.shape
    }

    /// The number of elements.
    #[allow(clippy::len_without_is_empty)] // `is_empty` would read as a question about the graph
    pub fn len(&self) -> usize {
        elements(self.shape()).expect("MLX has an array of this shape")
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.node.dtype
    }

    /// Evaluates the array and returns its contents in a form that any thread can read.
    ///
    /// The contents are not copied unless they are transposed or have gaps.
    ///
    /// # Errors
    ///
    /// Those of [`crate::eval()`].
    pub fn evaluate(&self) -> Result<Evaluated> {
        crate::eval([self])?;
        let raw = self.raw()?;
        let stream = stream::current()?;
        // SAFETY: the array was evaluated. If an evaluation that it depends on had failed, `eval` would have failed.
        let settled = unsafe { sys::settle(raw, stream) }.map_err(|error| {
            let error = error.into();
            state::fail_those_on(&[stream], &error);
            error
        })?;
        Evaluated::new(settled, self.shape().to_vec(), self.dtype())
    }

    /// Evaluates the array and copies its elements out, in row-major order.
    ///
    /// # Errors
    ///
    /// [`Error::Dtype`] if its elements are not of type `T`; those of [`Array::evaluate`].
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        check_dtype::<T>(self.dtype())?;
        Ok(self.evaluate()?.as_slice()?.to_vec())
    }

    /// Puts a result of MLX into this thread's graph, with the inputs of its operation. If the operation changes
    /// nothing, MLX returns one of the inputs. MLX also drops inputs that have no effect; they are not evaluated.
    pub(crate) fn computed(raw: UniquePtr<sys::Array>, from: &[&Self]) -> Result<Self> {
        for &input in from {
            if sys::is_same(&raw, &input.node.raw)? {
                return Ok(input.clone());
            }
        }
        let inputs: Vec<_> = from
            .iter()
            .map(|input| ArrayRef {
                array: &input.node.raw,
            })
            .collect();
        let uses = sys::uses(&raw, &inputs)?;
        let used = from.iter().zip(uses).filter(|&(_, is_used)| is_used);
        let states = used.map(|(input, _)| input.state().clone()).collect();
        Self::new(raw, State::lazy(states))
    }

    /// Puts an array with known contents into this thread's graph.
    pub(crate) fn known(raw: UniquePtr<sys::Array>) -> Result<Self> {
        Self::new(raw, State::evaluated())
    }

    fn new(raw: UniquePtr<sys::Array>, state: Rc<State>) -> Result<Self> {
        let shape = sys::shape(&raw)?
            .into_iter()
            .map(|extent| extent as usize)
            .collect();
        let dtype = Dtype::from_raw(sys::kind(&raw)?)?;
        Ok(Self {
            node: Rc::new(Node {
                raw,
                shape,
                dtype,
                state,
            }),
        })
    }

    /// The array, for an operation that reads it.
    pub(crate) fn raw(&self) -> Result<&sys::Array> {
        self.node.state.require_intact()?;
        Ok(&self.node.raw)
    }

    pub(crate) fn state(&self) -> &Rc<State> {
        &self.node.state
    }
}

/// Evaluates arrays together, and waits for them.
///
/// If it succeeds, all intermediate results stay as well.
///
/// ```
/// # use mlx_overlay::{Array, eval, matmul};
/// # fn main() -> mlx_overlay::Result<()> {
/// let a = Array::from_slice(&[2.0f32], &[1, 1])?;
/// let square = matmul(&a, &a)?;
/// let fourth = matmul(&square, &square)?;
/// eval([&square, &fourth])?;
/// assert_eq!(fourth.to_vec::<f32>()?, [16.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// MLX's, and [`Error::OutOfMemory`]. Everything that this evaluation had to compute is then lost. It can also fail work
/// that was started with [`async_eval`] and not waited for: what this evaluation uses, and what is on the same streams.
/// Nothing else is affected. [`Error::Lost`] if an earlier evaluation that the arrays depend on failed.
pub fn eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    with_states(arrays, state::evaluate)
}

/// Starts the evaluation of arrays without waiting for it, so that the thread can, for example, build the next step.
/// [`eval()`] and everything else that needs the contents waits.
///
/// ```
/// # use mlx_overlay::{Array, async_eval, matmul};
/// # fn main() -> mlx_overlay::Result<()> {
/// let a = Array::from_slice(&[2.0f32], &[1, 1])?;
/// let square = matmul(&a, &a)?;
/// async_eval([&square])?;
/// let fourth = matmul(&square, &square)?; // built meanwhile
/// assert_eq!(fourth.to_vec::<f32>()?, [16.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Those of [`eval()`], if the evaluation could not be started. If it fails later, the first evaluation that waits for
/// it returns the error. A failure on a stream can also fail other work that was started on that stream and not waited
/// for: use a separate stream for each request that must fail alone.
pub fn async_eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    with_states(arrays, state::start)
}

fn with_states<'a>(
    arrays: impl IntoIterator<Item = &'a Array>,
    run: impl FnOnce(&[ArrayRef<'_>], &[Rc<State>]) -> Result<()>,
) -> Result<()> {
    let arrays: Vec<&Array> = arrays.into_iter().collect();
    let references = references(&arrays)?;
    let states: Vec<_> = arrays.iter().map(|array| array.state().clone()).collect();
    run(&references, &states)
}

/// Arrays in the form that the bridge takes.
pub(crate) fn references<'a>(arrays: &[&'a Array]) -> Result<Vec<ArrayRef<'a>>> {
    let reference = |array: &&'a Array| {
        Ok(ArrayRef {
            array: array.raw()?,
        })
    };
    arrays.iter().map(reference).collect()
}

pub(crate) fn check_dtype<T: Element>(found: Dtype) -> Result<()> {
    if found == T::DTYPE {
        Ok(())
    } else {
        Err(Error::Dtype {
            argument: "the array",
            found,
            expected: T::DTYPE.to_string(),
        })
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The contents are not printed: that would evaluate the array.
        write!(f, "Array({}, {:?})", self.dtype(), self.shape())
    }
}

#[cfg(test)]
#[path = "array/tests.rs"]
mod tests;
