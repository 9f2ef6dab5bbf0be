use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use mlx_overlay_sys::{self as sys, ArrayRef};

use crate::ops::require_float_type;
use crate::{Array, Dtype, Error, Quantization, QuantizationMode, Result, Stream};

/// Who decides between the kernels that compute one quantized product.
///
/// MLX computes several rows faster than one by one, but then a row does not have the bits that it
/// has alone. A policy says which products must keep them:
///
/// | policy | below the batch limit | from there on | weights read |
/// |---|---|---|---|
/// | `Default` | as MLX does | as MLX does | as MLX does |
/// | `Narrow` | bits of one row | as MLX does | once a row |
/// | `Streamed` | bits of one row | as MLX does | once for 8 rows |
/// | `Exact` | bits of one row | bits of one row | once for 8 rows |
///
/// One row takes the same kernel under every policy. A policy holds for quantized products, not for
/// attention or for products of dense matrices.
///
/// What is asked first when a product is dispatched: the policy of its stream
/// ([`Stream::with_policy`]), a hook that C code registered, the process's `MLX_QMV_POLICY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QmvPolicy {
    /// MLX's own choice.
    Default,
    /// One-row kernels for each row.
    Narrow,
    /// Order-preserving kernels for several rows.
    Streamed,
    /// Order-preserving kernels for any number of rows.
    Exact,
}

impl QmvPolicy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Default, Self::Narrow, Self::Streamed, Self::Exact];

    /// Whether the linked MLX has policies: the overlay's Metal back-end does, pristine MLX and the
    /// CPU back-end do not.
    pub fn is_available() -> bool {
        sys::has_policies()
    }

    /// The policy of products that neither their stream nor a hook decides: that of the environment
    /// variable `MLX_QMV_POLICY` when it was first needed, else [`QmvPolicy::Default`].
    ///
    /// # Errors
    ///
    /// [`Error::NoPolicies`]; MLX's, if the variable names no policy.
    pub fn of_process() -> Result<Self> {
        require()?;
        Self::from_raw(sys::process_policy()?)
    }

    /// Its name, as `MLX_QMV_POLICY` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Narrow => "narrow",
            Self::Streamed => "streamed",
            Self::Exact => "exact",
        }
    }

    fn from_raw(raw: i32) -> Result<Self> {
        usize::try_from(raw)
            .ok()
            .and_then(|i| Self::ALL.get(i).copied())
            .ok_or_else(|| Error::Mlx(format!("no policy has the number {raw}")))
    }
}

impl fmt::Display for QmvPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for QmvPolicy {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.name() == name)
            .ok_or_else(|| Error::PolicyName(name.to_owned()))
    }
}

impl Stream {
    /// Makes a GPU stream for the calling thread whose quantized products follow a policy.
    ///
    /// The policy is fixed for good. Enter the stream with [`Stream::scope`] to build products on
    /// it; they follow the policy whenever they are evaluated, and whatever else the process does.
    ///
    /// ```
    /// # use mlx_overlay::{Array, QmvPolicy, Quantization, Stream, quantize, quantized_matmul};
    /// # fn main() -> mlx_overlay::Result<()> {
    /// # if !QmvPolicy::is_available() { return Ok(()) }
    /// let w = Array::from_slice(&vec![0.5f32; 8 * 512], &[8, 512])?;
    /// let w = quantize(&w, Quantization::affine(4, 64)?)?;
    /// let x = Array::from_slice(&vec![1.0f32; 6 * 512], &[6, 512])?;
    ///
    /// let exact = Stream::with_policy(QmvPolicy::Exact)?;
    /// let verified = exact.scope(|| quantized_matmul(&x, &w))?;
    /// exact.check_products([&verified])?;
    /// let rows = verified.to_vec::<f32>()?;
    /// # assert_eq!(rows.len(), 48);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoPolicies`] if the linked MLX has none; MLX's.
    pub fn with_policy(policy: QmvPolicy) -> Result<Self> {
        require()?;
        Ok(Self::from_raw(sys::new_policy_stream(policy as i32)?))
    }

    /// The policy that the stream was made with.
    ///
    /// # Errors
    ///
    /// [`Error::NoPolicies`] if the linked MLX has none; MLX's.
    pub fn policy(&self) -> Result<Option<QmvPolicy>> {
        require()?;
        match sys::stream_policy(self.index())? {
            -1 => Ok(None),
            raw => QmvPolicy::from_raw(raw).map(Some),
        }
    }

    /// Checks that an evaluation of the arrays would run every quantized product on this stream.
    /// Nothing is evaluated.
    ///
    /// A product built outside of [`Stream::scope`] follows another stream's policy, silently. This
    /// finds it beforehand.
    ///
    /// # Errors
    ///
    /// [`Error::Stray`] names the products that are elsewhere.
    pub fn check_products<'a>(&self, arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
        let references = arrays
            .into_iter()
            .map(|array| {
                Ok(ArrayRef {
                    array: array.raw()?,
                })
            })
            .collect::<Result<Vec<ArrayRef<'_>>>>()?;
        let strays = sys::stray_products(&references, self.raw())?;
        if strays.is_empty() {
            return Ok(());
        }
        Err(Error::Stray {
            stream: self.index(),
            products: strays
                .into_iter()
                .map(|stray| {
                    format!(
                        "{} {:?} on stream {}",
                        stray.primitive, stray.shape, stray.stream
                    )
                })
                .collect(),
        })
    }
}

/// What a quantized product does on the device, as the dispatch itself decides it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DispatchPlan {
    /// The policy in force.
    pub policy: QmvPolicy,
    /// The kernel family, `qmv_streamed` for example.
    pub path: String,
    /// The kernel's name in the library.
    pub kernel: String,
    /// Rows of x that one threadgroup serves.
    pub tile: usize,
    /// Tiles of rows.
    pub tiles: usize,
    /// How often the weights are read.
    pub weight_passes: usize,
    /// Bytes of weights, scales and biases that are read.
    pub weight_bytes: u64,
    /// Whether every row has the bits that it has alone.
    pub identical: bool,
}

impl DispatchPlan {
    /// The plan of a product of `m` rows with a matrix of `n` rows of `k` values, on this device, in
    /// this process and on a stream.
    ///
    /// # Errors
    ///
    /// [`Error::NoPolicies`] if the linked MLX has none; [`Error::Dtype`] unless `dtype` is of
    /// floating point, as x is; MLX's, if the shapes fit no kernel.
    pub fn of(
        [m, n, k]: [usize; 3],
        quantization: Quantization,
        dtype: Dtype,
        stream: &Stream,
    ) -> Result<Self> {
        require()?;
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
        let count = |value: i32| usize::try_from(value).unwrap_or(0);
        Ok(Self {
            policy: QmvPolicy::from_raw(plan.policy)?,
            path: plan.path,
            kernel: plan.kernel,
            tile: count(plan.tile),
            tiles: count(plan.tiles),
            weight_passes: count(plan.weight_passes),
            weight_bytes: u64::try_from(plan.weight_bytes).unwrap_or(0),
            identical: plan.identical,
        })
    }
}

/// A kernel family that a [`Route`] can lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum RoutePath {
    /// One row at a time.
    Qmv = 2,
    /// MLX's tiles of rows. Not taken where bits of one row are asked for.
    Wide = 3,
    /// Order-preserving tiles of rows.
    Streamed = 4,
}

/// A measured preference for products of a format whose sizes lie in its ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The quantization mode, or any.
    pub mode: Option<QuantizationMode>,
    /// Bits a weight, or any.
    pub bits: Option<u8>,
    /// Weights that share a scale, or any number.
    pub group_size: Option<u8>,
    /// Outputs a row.
    pub n: RangeInclusive<i32>,
    /// Values a row.
    pub k: RangeInclusive<i32>,
    /// Rows.
    pub m: RangeInclusive<i32>,
    /// What they take.
    pub path: RoutePath,
}

/// Replaces the process's routing table, which is empty at first: of the routes that fit a product,
/// the first that its policy permits is taken.
///
/// # Errors
///
/// [`Error::NoPolicies`] if the linked MLX has none; MLX's, naming the route that makes no sense.
pub fn set_routes(routes: &[Route]) -> Result<()> {
    require()?;
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

/// How often each quantized kernel was dispatched since the process began or
/// [`reset_dispatch_stats`], by its function (`qmv_fast`, `qmv_wide`, ..); those never dispatched
/// are left out.
///
/// # Errors
///
/// [`Error::NoPolicies`] if the linked MLX has none.
pub fn dispatch_stats() -> Result<Vec<(String, u64)>> {
    require()?;
    let counts = sys::kernel_counts()?;
    Ok(counts
        .into_iter()
        .map(|count| (count.kernel, count.dispatches))
        .collect())
}

/// Begins counting anew.
///
/// # Errors
///
/// [`Error::NoPolicies`] if the linked MLX has none.
pub fn reset_dispatch_stats() -> Result<()> {
    require()?;
    Ok(sys::reset_kernel_counts()?)
}

/// The name of the quantized kernel that this thread dispatched last.
///
/// # Errors
///
/// [`Error::NoPolicies`] if the linked MLX has none.
pub fn last_kernel() -> Result<Option<String>> {
    require()?;
    Ok(Some(sys::last_kernel()?).filter(|name| !name.is_empty()))
}

fn require() -> Result<()> {
    if QmvPolicy::is_available() {
        Ok(())
    } else {
        Err(Error::NoPolicies)
    }
}
