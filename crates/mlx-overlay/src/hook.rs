use mlx_overlay_sys as sys;
use mlx_terms::{Format, Primitive};

use crate::policy::{raw_policy, require_policies};
use crate::{Dtype, QuantizationMode, Result, RowPolicy};

/// An operation for which a hook decides the policy. A product multiplies x (`[batch, rows, k]`) by weights of `n`
/// rows of `k` values. Attention has queries of `[batch, heads, rows, k]`, `keys` keys, and values of `n` numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operation {
    /// MLX's name for the primitive.
    pub primitive: Primitive,
    /// The type of the rows and of the result.
    pub dtype: Dtype,
    /// How the weights are quantized; `None` if they are not.
    pub format: Option<Format>,
    /// Whether the weights are `[n, k]`, as in a linear layer.
    pub transpose: bool,
    /// Rows that use the same weights, or positions of attention and gated delta. A policy limits this number. For
    /// gathers it limits the `batch * rows` picks instead: [`RowPolicy::PICKS_PER_ROW`] picks count as a row.
    pub rows: usize,
    /// Outputs per row.
    pub n: usize,
    /// Values per row.
    pub k: usize,
    /// Products, each with `rows` rows; sequences of attention and gated delta.
    pub batch: usize,
    /// Matrices from which a gather picks; 1 otherwise.
    pub experts: usize,
    /// Whether the right-hand indices of a gather are sorted.
    pub right_sorted: bool,
    /// Whether nvfp4 weights have a global scale.
    pub global_scale: bool,
    /// Heads of the queries, or of the values of gated delta; 0 otherwise.
    pub heads: usize,
    /// Heads of the keys; 0 otherwise.
    pub kv_heads: usize,
    /// Keys that the last position sees; 0 otherwise.
    pub keys: usize,
    /// Index of the operation's stream ([`crate::Stream::index`]); `None` if the stream is not known yet.
    pub stream: Option<i32>,
}

impl Operation {
    fn from_raw(raw: &sys::RowProblem) -> std::result::Result<Self, String> {
        // MLX has no negative extents.
        let size = |value: i32| usize::try_from(value).unwrap_or(0);
        let unknown = |what: &str, number| format!("no {what} has the number {number}");
        let primitive =
            Primitive::from_number(raw.op).ok_or_else(|| unknown("operation", raw.op))?;
        let dtype = match raw.dtype {
            0 => Dtype::F32,
            1 => Dtype::F16,
            2 => Dtype::Bf16,
            number => return Err(unknown("type", number)),
        };
        Ok(Self {
            primitive,
            dtype,
            format: format_of(primitive, raw),
            transpose: raw.transpose != 0,
            rows: size(raw.m),
            n: size(raw.n),
            k: size(raw.k),
            batch: size(raw.batch),
            experts: size(raw.experts),
            right_sorted: raw.right_sorted != 0,
            global_scale: raw.global_scale != 0,
            heads: size(raw.heads),
            kv_heads: size(raw.kv_heads),
            keys: size(raw.keys),
            stream: Some(raw.stream).filter(|&index| index >= 0),
        })
    }
}

fn format_of(primitive: Primitive, raw: &sys::RowProblem) -> Option<Format> {
    let is_quantized = matches!(
        primitive,
        Primitive::QuantizedMatmul
            | Primitive::GatherQmm
            | Primitive::QqMatmul
            | Primitive::GatherQqmm
    );
    if !is_quantized {
        return None;
    }
    let number = |value: i32| u32::try_from(value).ok();
    let mode = QuantizationMode::from_number(raw.mode)?;
    Format::new(mode, number(raw.bits)?, number(raw.group_size)?).ok()
}

/// Registers a closure that decides the policy of each operation whose stream has none; it replaces the previous hook.
/// If the closure returns `None`, the process's policy ([`crate::process_policy`]) applies.
///
/// The hook belongs to the process: a library should leave it to the program. Several threads may call it at the same
/// time, each while it evaluates or, for attention, while it builds the graph. It must only return a policy: an
/// evaluation inside it fails with [`crate::Error::InPolicyHook`], registering or removing a hook fails too, and it must
/// not wait for another thread that uses MLX. A panic in it becomes an error of the evaluation that called it. This
/// function returns when no call of the previous closure is running and that closure has been dropped.
///
/// ```
/// use mlx_overlay::{RowPolicy, remove_policy_hook, set_policy_hook};
///
/// # fn main() -> mlx_overlay::Result<()> {
/// # if !mlx_overlay::has_policies() { return Ok(()) }
/// // Everything but the projection to the vocabulary.
/// set_policy_hook(|operation| (operation.n < 100_000).then_some(RowPolicy::EXACT))?;
/// # remove_policy_hook()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`crate::Error::NoPolicies`] if the linked MLX is pristine; MLX's, inside a hook.
pub fn set_policy_hook(
    hook: impl Fn(&Operation) -> Option<RowPolicy> + Send + Sync + 'static,
) -> Result<()> {
    require_policies()?;
    let answer = move |raw: &sys::RowProblem| {
        let declines = sys::RowPolicy { kind: -1, rows: 0 };
        Ok(hook(&Operation::from_raw(raw)?).map_or(declines, raw_policy))
    };
    Ok(sys::set_policy_hook(sys::PolicyHook::new(Box::new(
        answer,
    )))?)
}

/// Removes the hook, no matter which code registered it. Returns when none of its calls is running and its closure has
/// been dropped.
///
/// # Errors
///
/// [`crate::Error::NoPolicies`] if the linked MLX is pristine; MLX's, inside a hook.
pub fn remove_policy_hook() -> Result<()> {
    require_policies()?;
    Ok(sys::remove_policy_hook()?)
}
