//! A safe interface to the MLX that mlx-overlay pins, patches and builds.
//!
//! ```
//! use mlx_overlay::{Array, Quantization, quantize, quantized_matmul};
//!
//! # fn main() -> mlx_overlay::Result<()> {
//! let w = Array::from_slice(&vec![0.5f32; 8 * 64], &[8, 64])?;
//! let w = quantize(&w, Quantization::affine(4, 64)?)?;
//! let x = Array::from_slice(&vec![1.0f32; 2 * 64], &[2, 64])?;
//! let y = quantized_matmul(&x, &w)?;
//! assert_eq!(y.shape(), [2, 8]);
//! assert!(y.to_vec::<f32>()?.iter().all(|y| (y - 32.0).abs() < 1e-3));
//! # Ok(())
//! # }
//! ```
//!
//! # Types
//!
//! An operation on arrays of several types computes in the type to which MLX promotes them. Between kinds the higher
//! wins: floats over integers over bool, even if the integer is wider (`i64` and `f16` give `f16`). Within a kind the
//! wider wins, except that `f16` with `bf16` gives `f32`. An unsigned integer with a signed one that is not wider gives
//! the signed type of twice its width; `u64` with a signed one gives `f32`. Token ids are only exact as integers.
//!
//! # Laziness
//!
//! Operations build a graph; nothing runs until [`eval()`], [`async_eval()`], [`Array::evaluate`] or
//! [`Array::to_vec`]. Each operation remembers the stream it was built on: the thread's current
//! one, which [`Stream::scope`] sets.
//!
//! # Threads
//!
//! MLX keeps streams per thread and does not lock its graph, so an [`Array`] is neither `Send` nor
//! `Sync`: two threads that evaluate one lazy array corrupt it, and an array whose stream belongs
//! to another thread cannot be evaluated. An [`Evaluated`] is both. It has no graph and its memory
//! is never written to again; [`Evaluated::to_array`] puts it into the graph of any thread.
//!
//! - MLX's default device is a process-wide variable without a lock. This crate neither sets nor
//!   relies on it: every operation names its stream.
//! - Every thread that uses MLX has its own default streams. When it ends, its default CPU stream is passed on to the
//!   next thread, and its GPU resources are released. A CPU stream made with [`Stream::new`] keeps one operating-system
//!   thread until the process ends, so make few.
//! - If the process's main thread is not the first to use MLX, this crate starts one more thread, which is idle. MLX
//!   takes the first thread that it sees for the main thread, and would confuse it with later threads once it has
//!   ended.
//! - After `fork` in a process that has used MLX, the child lacks MLX's threads: every call in it fails with
//!   [`Error::ProcessForked`]. Start a program instead (`std::process::Command`), or fork earlier.
//! - A call made while MLX's variables are being destroyed (from a `Drop` in a `thread_local!`, or
//!   from another thread while the process exits) returns [`Error::ThreadEnding`] or
//!   [`Error::ProcessEnding`]. The process exits only when calls in progress have returned.
//!
//! # Policies
//!
//! A [`RowPolicy`] determines which operations keep, for each row, the bits that the row has alone.
//! [`Stream::with_policy`], [`set_policy_hook`] or the environment determines which policy an operation has.
//!
//! # Errors
//!
//! Exceptions of MLX arrive as [`Error::Mlx`] with MLX's text, and a lack of memory as [`Error::OutOfMemory`]. Shapes,
//! types and lengths that would make MLX read or write out of bounds are rejected first. So are arrays without elements,
//! except by functions that only transpose. The effect of NaN is documented if it differs from that in arithmetic.
//!
//! Every function can fail with [`Error::ThreadEnding`], [`Error::ProcessEnding`] or [`Error::ProcessForked`], even if
//! its section on errors does not mention it.
//!
//! A failed evaluation loses what it had to compute ([`Error::Lost`]) and what is built on that. Everything that an
//! earlier evaluation computed stays, intermediate results included, so a server keeps the caches of its other
//! requests. Weights that are computed from others (quantized, converted) are intermediate results too: evaluate them
//! once before the first request.

#![warn(missing_docs)]

mod array;
mod device;
mod element;
mod error;
mod evaluated;
mod hook;
mod info;
mod io;
pub mod memory;
mod neural;
mod ops;
mod policy;
mod quantized;
pub mod random;
#[cfg(test)]
mod random_graphs;
mod state;
mod stream;

pub use array::{Array, async_eval, eval};
pub use device::Device;
pub use element::{Dtype, Element};
pub use error::{Error, Finding, Result};
pub use evaluated::Evaluated;
pub use half::{bf16, f16};
pub use hook::{Operation, remove_policy_hook, set_policy_hook};
pub use info::{Backend, BuildInfo, build_info, mlx_version};
pub use io::{SafetensorsFile, load_safetensors, save_safetensors};
pub use mlx_terms::{
    DispatchCount, Format, FormatError, Mode as QuantizationMode, Path as DispatchPath,
    Policy as RowPolicy, PolicyError, PolicyKind, Primitive, Route, RoutePath, UnknownName,
};
pub use neural::{
    Frequencies, Mask, Positions, Rope, RopeOptions, attention, layer_norm, rms_norm, rope,
    rope_with,
};
pub use ops::{
    add, addmm, argmax, argpartition, as_type, concatenate, cumsum, equal, gather_matmul, greater,
    greater_equal, less, less_equal, matmul, multiply, not_equal, reshape, sigmoid, slice,
    slice_update, softmax, softmax_along, sort, take, take_rows, transpose, transpose_axes, where_,
};
pub use policy::{
    DispatchPlan, dispatch_stats, has_matrix_units, has_policies, process_policy, record_kernels,
    reset_dispatch_stats, set_routes,
};
pub use quantized::{
    EvaluatedExperts, EvaluatedMatrix, Quantization, QuantizedExperts, QuantizedMatrix, dequantize,
    gather_quantized_matmul, quantize, quantize_experts, quantized_matmul,
};
pub use stream::Stream;
