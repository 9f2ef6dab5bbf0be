use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use cxx::UniquePtr;
use mlx_overlay_sys as sys;

use crate::element::{Dtype, Element};
use crate::error::{Error, Result};
use crate::evaluated::Evaluated;
use crate::stream;

/// An array of MLX: a node of a graph that is evaluated when its contents are asked for.
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
    /// When it was made, on the clock of [`LOST_BEFORE`].
    made: u64,
    /// Whether its contents are known to be there.
    evaluated: Cell<bool>,
}

thread_local! {
    /// Counts this thread's arrays.
    static CLOCK: Cell<u64> = const { Cell::new(0) };
    /// Arrays made before this moment and not evaluated by then are lost: an evaluation failed. MLX
    /// marks arrays as evaluated when their kernels are queued, so after a failure it would hand
    /// out memory that was never written.
    static LOST_BEFORE: Cell<u64> = const { Cell::new(0) };
}

impl Array {
    /// Copies elements into a new array, in row-major order.
    ///
    /// An extent may be 0, and a shape without extents is a scalar; operations refuse arrays
    /// without elements.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if the elements do not fill the shape, [`Error::TooLarge`] if an extent is
    /// 2^31 or more.
    pub fn from_slice<T: Element>(elements: &[T], shape: &[usize]) -> Result<Self> {
        let expected = shape
            .iter()
            .try_fold(1usize, |product, &extent| product.checked_mul(extent));
        if expected != Some(elements.len()) {
            return Err(Error::Length {
                elements: elements.len(),
                shape: shape.to_vec(),
            });
        }
        let extents = shape
            .iter()
            .map(|&extent| i32::try_from(extent))
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|_| Error::TooLarge {
                what: "each extent",
                shape: shape.to_vec(),
            })?;
        // SAFETY: an Element is plain memory without padding, so its bytes are initialized, and u8
        // has no alignment.
        let bytes = unsafe {
            std::slice::from_raw_parts(elements.as_ptr().cast::<u8>(), size_of_val(elements))
        };
        let array = Self::from_raw(sys::from_bytes(bytes, &extents, T::DTYPE.raw())?)?;
        array.node.evaluated.set(true);
        Ok(array)
    }

    /// Extents of its dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.node.shape
    }

    /// Number of its elements.
    #[allow(clippy::len_without_is_empty)] // `is_empty` would read as a question about the graph
    pub fn len(&self) -> usize {
        self.node.shape.iter().product()
    }

    /// Type of its elements.
    pub fn dtype(&self) -> Dtype {
        self.node.dtype
    }

    /// Evaluates the array and gives its contents in a form that any thread can read.
    ///
    /// The contents are not copied unless they lie transposed or with gaps.
    ///
    /// # Errors
    ///
    /// MLX's; [`Error::Lost`] after an earlier failure on this thread.
    pub fn evaluate(&self) -> Result<Evaluated> {
        let raw = self.raw()?;
        let stream = stream::current()?;
        // SAFETY: `raw` gives no array that was there, not evaluated, when an evaluation on this
        // thread failed, and operations take their inputs from it as well.
        let settled = guard_evaluation(|| Ok(unsafe { sys::settle(raw, stream) }?))?;
        self.node.evaluated.set(true);
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

    /// Takes an array of MLX into this thread's graph.
    pub(crate) fn from_raw(raw: UniquePtr<sys::Array>) -> Result<Self> {
        let shape = sys::shape(&raw)?
            .into_iter()
            .map(|extent| extent as usize)
            .collect();
        let dtype = Dtype::from_raw(sys::kind(&raw)?);
        let made = CLOCK.get();
        CLOCK.set(made + 1);
        Ok(Self {
            node: Rc::new(Node {
                raw,
                shape,
                dtype,
                made,
                evaluated: Cell::new(false),
            }),
        })
    }

    /// The array, for an operation that reads it.
    pub(crate) fn raw(&self) -> Result<&sys::Array> {
        if !self.node.evaluated.get() && self.node.made < LOST_BEFORE.get() {
            return Err(Error::Lost);
        }
        Ok(&self.node.raw)
    }

    pub(crate) fn mark_evaluated(&self) {
        self.node.evaluated.set(true);
    }
}

/// Runs an evaluation; if it fails, this thread's arrays whose contents are not known to be there
/// are lost.
pub(crate) fn guard_evaluation<T>(evaluate: impl FnOnce() -> Result<T>) -> Result<T> {
    // Refused before anything of the evaluation that waits for the hook's answer is lost.
    if sys::in_policy_hook() {
        return Err(Error::InPolicyHook);
    }
    evaluate().inspect_err(|_| LOST_BEFORE.set(CLOCK.get()))
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
        // Not its contents: that would evaluate it.
        write!(f, "Array({}, {:?})", self.dtype(), self.shape())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul;

    /// A failing array needs the bridge, so this is not with the other tests of threads.
    #[test]
    fn after_a_failure_unevaluated_arrays_are_lost() {
        let a = Array::from_slice(&[1.0f32, 0.0, 0.0, 2.0], &[2, 2]).unwrap();
        let done = matmul(&a, &a).unwrap();
        done.evaluate().unwrap();
        let pending = matmul(&a, &a).unwrap();
        let cpu = sys::default_stream(sys::DeviceKind::Cpu).unwrap();
        let failing = bridge_testing::fails_when_run(a.raw().unwrap(), cpu).unwrap();
        let failing = Array::from_raw(failing).unwrap();

        let error = failing.to_vec::<f32>().unwrap_err();
        assert_eq!(error, Error::Mlx("failed when run".to_owned()));
        // MLX has marked it evaluated, and would hand out its memory.
        assert_eq!(failing.to_vec::<f32>().unwrap_err(), Error::Lost);
        assert_eq!(pending.to_vec::<f32>().unwrap_err(), Error::Lost);
        assert_eq!(matmul(&pending, &a).unwrap_err(), Error::Lost);
        assert_eq!(crate::eval([&a, &pending]).unwrap_err(), Error::Lost);
        // What was there before is there still, and the thread works on.
        assert_eq!(done.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 4.0]);
        let again = matmul(&done, &a).unwrap();
        assert_eq!(again.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 8.0]);
    }
}
