use std::cell::Cell;

use mlx_overlay_sys as sys;

use crate::array::references;
use crate::ops::require_float_type;
use crate::{
    Array, Device, DispatchCount, DispatchPath, Dtype, Error, Finding, Quantization, Result, Route,
    RowPolicy, Stream,
};

/// Whether the linked MLX has kernels for policies: the overlay's Metal back-end has. A CPU build of the overlay rejects
/// every policy except [`RowPolicy::DEFAULT`], and pristine MLX has none.
pub fn has_policies() -> bool {
    sys::has_row_kernels()
}

/// The process's policy, for operations for which neither their stream nor a hook decides: the value of the environment
/// variable `MLX_ROW_POLICY` when it was first needed, else [`RowPolicy::DEFAULT`].
///
/// Precedence: the policy of the operation's stream ([`Stream::with_policy`], [`Stream::set_policy`]), the hook
/// ([`crate::set_policy_hook`]), the process's.
///
/// # Errors
///
/// [`Error::NoPolicies`] if the linked MLX is pristine; MLX's, if the variable is not a valid policy, or if the former
/// variable `MLX_QMV_POLICY` is set.
pub fn process_policy() -> Result<RowPolicy> {
    require_policies()?;
    policy(sys::process_policy()?)
}

fn policy(raw: sys::RowPolicy) -> Result<RowPolicy> {
    RowPolicy::from_numbers([raw.kind, raw.rows])
        .ok_or_else(|| Error::Mlx(format!("no policy has the numbers {raw:?}")))
}

pub(crate) fn raw_policy(policy: RowPolicy) -> sys::RowPolicy {
    let [kind, rows] = policy.numbers();
    sys::RowPolicy { kind, rows }
}

impl Stream {
    /// Makes a GPU stream for the calling thread whose operations follow a policy.
    ///
    /// The policy is permanent. Build operations on the stream inside [`Stream::scope`]. They follow the policy whenever
    /// they are evaluated, independently of everything else in the process.
    ///
    /// ```
    /// # use mlx_overlay::{
    /// #     Array, Quantization, RowPolicy, Stream, has_policies, quantize, quantized_matmul,
    /// # };
    /// # fn main() -> mlx_overlay::Result<()> {
    /// # if !has_policies() { return Ok(()) }
    /// let w = Array::from_slice(&vec![0.5f32; 8 * 512], &[8, 512])?;
    /// let w = quantize(&w, Quantization::affine(4, 64)?)?;
    /// let x = Array::from_slice(&vec![1.0f32; 6 * 512], &[6, 512])?;
    ///
    /// let exact = Stream::with_policy(RowPolicy::EXACT)?;
    /// let verified = exact.scope(|| quantized_matmul(&x, &w))?;
    /// exact.check_operations([&verified])?;
    /// let rows = verified.to_vec::<f32>()?;
    /// # assert_eq!(rows.len(), 48);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoPolicies`] if the linked MLX is pristine; MLX's, if there is no GPU, or no kernels for a policy other
    /// than [`RowPolicy::DEFAULT`].
    pub fn with_policy(policy: RowPolicy) -> Result<Self> {
        require_policies()?;
        Ok(Self::from_raw(sys::new_policy_stream(raw_policy(policy))?))
    }

    /// Gives the stream its permanent policy, for example that of a default stream.
    ///
    /// ```
    /// # use mlx_overlay::{Device, RowPolicy, Stream, has_policies};
    /// # fn main() -> mlx_overlay::Result<()> {
    /// # if !has_policies() { return Ok(()) }
    /// let stream = Stream::new(Device::Gpu)?;
    /// assert_eq!(stream.policy()?, None);
    /// stream.set_policy(RowPolicy::EXACT.with_rows(8)?)?;
    /// assert!(stream.set_policy(RowPolicy::NARROW).is_err(), "it already has one");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoPolicies`] if the linked MLX is pristine; MLX's, if the stream has a policy or has computed without
    /// one, or (except for [`RowPolicy::DEFAULT`]) if it is a CPU stream or there are no kernels for a policy.
    pub fn set_policy(&self, policy: RowPolicy) -> Result<()> {
        require_policies()?;
        Ok(sys::set_stream_policy(self.index(), raw_policy(policy))?)
    }

    /// The policy of the stream, if it was given one.
    ///
    /// # Errors
    ///
    /// [`Error::NoPolicies`] if the linked MLX is pristine; MLX's.
    pub fn policy(&self) -> Result<Option<RowPolicy>> {
        require_policies()?;
        match sys::stream_policy(self.index())? {
            sys::RowPolicy { kind: -1, .. } => Ok(None),
            raw => policy(raw).map(Some),
        }
    }

    /// Checks that evaluating these arrays would give each row the bits that it has alone. Nothing is evaluated.
    ///
    /// It examines every operation that an evaluation would run, and reports
    ///
    /// - operations that policies cover (products, gathers, attention, gated delta), if they are on another stream or on
    ///   the CPU, have no policy, have more rows than its block, or did not read the policy when they were built;
    /// - attention with an array mask, attention that the program composes itself, and attention with a quantized cache;
    /// - other operations, unless their Metal kernels are known to compute each row independently.
    ///
    /// The policy is that of the stream, else that of the process; a hook is not called. A graph does not show
    /// everything: the check cannot see the order and padding of a cache, a softmax that the program composes, and what
    /// was evaluated before.
    ///
    /// ```
    /// # use mlx_overlay::{Array, Error, RowPolicy, Stream, has_policies, matmul};
    /// # fn main() -> mlx_overlay::Result<()> {
    /// # if !has_policies() { return Ok(()) }
    /// let x = Array::from_slice(&vec![1.0f32; 4 * 64], &[4, 64])?;
    /// let w = Array::from_slice(&vec![0.5f32; 64 * 8], &[64, 8])?;
    /// let exact = Stream::with_policy(RowPolicy::EXACT)?;
    /// let good = exact.scope(|| matmul(&x, &w))?;
    /// exact.check_operations([&good])?;
    ///
    /// let elsewhere = matmul(&x, &w)?;
    /// let Err(Error::Unkept { findings, .. }) = exact.check_operations([&elsewhere]) else {
    ///     panic!("a product on another stream");
    /// };
    /// assert_eq!(findings[0].primitive, "Matmul");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unkept`] with the findings; [`Error::NoPolicies`] if the linked MLX is pristine; MLX's, if the
    /// process's policy is invalid.
    pub fn check_operations<'a>(&self, arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
        require_policies()?;
        let arrays: Vec<&Array> = arrays.into_iter().collect();
        let findings = sys::check_operations(&references(&arrays)?, self.raw())?;
        if findings.is_empty() {
            return Ok(());
        }
        Err(Error::Unkept {
            stream: self.index(),
            findings: findings.into_iter().map(finding).collect(),
        })
    }
}

fn finding(raw: sys::RowFinding) -> Finding {
    let extent = |extent| usize::try_from(extent).unwrap_or_default();
    Finding {
        primitive: raw.primitive,
        shape: raw.shape.into_iter().map(extent).collect(),
        device: Device::from_raw(raw.stream.device),
        stream: raw.stream.index,
        why: raw.why,
        remedy: raw.remedy,
    }
}

/// How a quantized product is computed; the dispatch itself uses this plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DispatchPlan {
    /// The policy in force.
    pub policy: RowPolicy,
    /// The path: the kernels that compute the product.
    pub path: DispatchPath,
    /// Whether the kernel for a K without a tail (`qmv_fast`) is used.
    pub fast: bool,
    /// The most rows of x per threadgroup; 0 if MLX's matrix kernels decide.
    pub tile: usize,
    /// Outputs of a row per simdgroup in a streamed kernel; 0 otherwise.
    pub outputs: usize,
    /// Simdgroups of a streamed kernel that share x in threadgroup memory; 0 if each has its own.
    pub sharing: usize,
    /// Whether every row has the bits that it has alone.
    pub identical: bool,
}

impl DispatchPlan {
    /// The plan of a product of `m` rows with a matrix of `n` rows of `k` values, on this device, in
    /// this process and on a stream.
    ///
    /// # Errors
    ///
    /// [`Error::NoPolicies`] if the linked MLX has no kernels for policies; [`Error::Dtype`] unless `dtype`, the type
    /// of x, is floating-point; MLX's, if the shapes fit no kernel.
    pub fn of(
        [m, n, k]: [usize; 3],
        quantization: Quantization,
        dtype: Dtype,
        stream: &Stream,
    ) -> Result<Self> {
        require_kernels()?;
        require_float_type("x", dtype)?;
        let extent = |extent: usize| {
            i32::try_from(extent).map_err(|_| Error::TooLarge {
                what: "each extent",
                shape: vec![m, n, k],
            })
        };
        let product = sys::ProductShape {
            m: extent(m)?,
            n: extent(n)?,
            k: extent(k)?,
            format: quantization.raw(),
            dtype: dtype.raw(),
        };
        let plan = sys::plan_product(&product, stream.raw())?;
        let path = DispatchPath::from_number(plan.path)
            .ok_or_else(|| Error::Mlx(format!("no path has the number {}", plan.path)))?;
        Ok(Self {
            policy: policy(plan.policy)?,
            path,
            fast: plan.fast,
            tile: usize::try_from(plan.tile).unwrap_or(0),
            outputs: usize::try_from(plan.outputs).unwrap_or(0),
            sharing: usize::try_from(plan.sharing).unwrap_or(0),
            identical: plan.identical,
        })
    }
}

/// Replaces the process's routing table, which is empty by default. Of the routes that match a product, the first that
/// its policy permits is used.
///
/// # Errors
///
/// [`Error::NoPolicies`] if the linked MLX has no kernels for policies; [`Error::Route`], or MLX's, naming the invalid
/// route.
pub fn set_routes(routes: &[Route]) -> Result<()> {
    require_kernels()?;
    for (number, route) in routes.iter().enumerate() {
        route
            .check_format()
            .map_err(|error| Error::Route { number, error })?;
    }
    let routes: Vec<_> = routes
        .iter()
        .map(|route| sys::ProductRoute {
            mode: route.mode.map_or(-1, |mode| mode as i32),
            bits: route.bits.map_or(0, i32::from),
            group_size: route.group_size.map_or(0, i32::from),
            n_min: *route.n.start(),
            n_max: *route.n.end(),
            k_min: *route.k.start(),
            k_max: *route.k.end(),
            m_min: *route.m.start(),
            m_max: *route.m.end(),
            path: route.path as i32,
        })
        .collect();
    Ok(sys::set_routes(&routes)?)
}

/// Whether the GPU has matrix units that MLX uses (from generation 17 and macOS 26.2 on).
///
/// # Errors
///
/// [`Error::NoPolicies`] if the linked MLX has no kernels for policies; MLX's, without a device.
pub fn has_matrix_units() -> Result<bool> {
    require_kernels()?;
    Ok(sys::has_matrix_units()?)
}

/// How many quantized products took each path since the process began or since [`reset_dispatch_stats`]. Paths that were
/// not taken are omitted.
///
/// # Errors
///
/// [`Error::NoPolicies`] if the linked MLX has no kernels for policies.
pub fn dispatch_stats() -> Result<Vec<DispatchCount>> {
    require_kernels()?;
    Ok(DispatchCount::list(&sys::path_counts()?))
}

/// Resets the counts.
///
/// # Errors
///
/// [`Error::NoPolicies`] if the linked MLX has no kernels for policies.
pub fn reset_dispatch_stats() -> Result<()> {
    require_kernels()?;
    Ok(sys::reset_path_counts()?)
}

/// Runs `work`. Returns its result and the names of the kernels that this thread requested from its device meanwhile,
/// in order and as they are named in the library.
///
/// ```
/// # use mlx_overlay::{Array, Quantization, has_policies, quantize, quantized_matmul, record_kernels};
/// # fn main() -> mlx_overlay::Result<()> {
/// # if !has_policies() { return Ok(()) }
/// let w = Array::from_slice(&vec![0.5f32; 8 * 512], &[8, 512])?;
/// let w = quantize(&w, Quantization::affine(4, 64)?)?;
/// let x = Array::from_slice(&vec![1.0f32; 512], &[1, 512])?;
/// quantized_matmul(&x, &w)?.evaluate()?; // also quantizes
/// let y = quantized_matmul(&x, &w)?;
/// let (rows, kernels) = record_kernels(|| y.to_vec::<f32>())?;
/// assert_eq!(rows?.len(), 8);
/// assert!(kernels.iter().all(|name| name.starts_with("affine_qmv_fast_")), "{kernels:?}");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::NoPolicies`] if the linked MLX has no kernels for policies, [`Error::Recording`] inside another recording.
/// In both cases `work` is not run.
pub fn record_kernels<T>(work: impl FnOnce() -> T) -> Result<(T, Vec<String>)> {
    require_kernels()?;
    let recording = Recording::begin()?;
    let outcome = work();
    let names = recording.end()?;
    Ok((outcome, names.lines().map(str::to_owned).collect()))
}

thread_local! {
    static RECORDING: Cell<bool> = const { Cell::new(false) };
}

/// Ends a recording, even if `work` panics.
struct Recording;

impl Recording {
    fn begin() -> Result<Self> {
        if RECORDING.replace(true) {
            return Err(Error::Recording);
        }
        let recording = Self;
        sys::record_kernels()?;
        Ok(recording)
    }

    fn end(self) -> Result<String> {
        Ok(sys::recorded_kernels()?)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDING.set(false);
        // After `end` nothing more is recorded. Without `end`, the records are dropped.
        let _ = sys::recorded_kernels();
    }
}

pub(crate) fn require_policies() -> Result<()> {
    if sys::has_policies() {
        Ok(())
    } else {
        Err(Error::NoPolicies)
    }
}

fn require_kernels() -> Result<()> {
    if has_policies() {
        Ok(())
    } else {
        Err(Error::NoPolicies)
    }
}
