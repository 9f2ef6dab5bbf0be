use mlx_terms::{DispatchCount, Format, Path, Policy};

use crate::{Error, Result, Stream, policy_of, sys};

/// The type of x and of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FloatType {
    /// `float32`.
    F32 = 0,
    /// `float16`.
    F16 = 1,
    /// `bfloat16`.
    Bf16 = 2,
}

/// How a quantized product is computed; the linked MLX's dispatch uses this plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DispatchPlan {
    /// The policy in force.
    pub policy: Policy,
    /// The path: the kernels that compute the product.
    pub path: Path,
    /// Whether the kernel for a K without a tail (`qmv_fast`) is used.
    pub fast: bool,
    /// The most rows of x per threadgroup; 0 if MLX's matrix kernels decide.
    pub tile: usize,
    /// Whether every row has the bits that it has alone.
    pub identical: bool,
}

impl DispatchPlan {
    /// The plan of a product of `m` rows with a matrix of `n` rows of `k` values, on this device, in this process and
    /// on a stream. With `None`: on a stream without a policy.
    ///
    /// # Errors
    ///
    /// [`Error::NoKernels`], [`Error::NoOverlay`]; [`Error::TooLarge`]; [`Error::Mlx`] if the shapes fit no kernel.
    pub fn of(
        [m, n, k]: [usize; 3],
        format: Format,
        dtype: FloatType,
        stream: Option<&Stream>,
    ) -> Result<Self> {
        let extent = |extent| i32::try_from(extent).map_err(|_| Error::TooLarge([m, n, k]));
        // A format's numbers are at most 128.
        let small = |number: u32| number.cast_signed();
        let problem = [
            format.mode() as i32,
            dtype as i32,
            small(format.bits()),
            small(format.group_size()),
            extent(m)?,
            extent(n)?,
            extent(k)?,
            stream.map_or(-1, Stream::index),
        ];
        let mut plan = [0; 6];
        Error::check(sys::plan_product(&problem, &mut plan))?;
        let [kind, rows, path, fast, tile, identical] = plan;
        Ok(Self {
            policy: policy_of([kind, rows])?,
            path: Path::from_number(path)
                .ok_or_else(|| Error::Mlx(format!("no path has the number {path}")))?,
            fast: fast != 0,
            tile: usize::try_from(tile).unwrap_or(0),
            identical: identical != 0,
        })
    }
}

/// How many quantized products took each path since the process began or since [`reset_dispatch_stats`]. Paths that were
/// not taken are omitted.
///
/// # Errors
///
/// [`Error::NoKernels`], [`Error::NoOverlay`].
pub fn dispatch_stats() -> Result<Vec<DispatchCount>> {
    let mut counts = [0; 2 * Path::ALL.len()];
    // SAFETY: there is room for the requested number of counters.
    unsafe { sys::counts(counts.as_mut_ptr(), counts.len()) };
    if let Some(function) = sys::absent() {
        return Err(Error::of_absent(function));
    }
    Ok(DispatchCount::list(&counts))
}

/// Resets the counts.
///
/// # Errors
///
/// [`Error::NoKernels`], [`Error::NoOverlay`].
pub fn reset_dispatch_stats() -> Result<()> {
    sys::reset_counts();
    sys::absent().map_or(Ok(()), |function| Err(Error::of_absent(function)))
}
