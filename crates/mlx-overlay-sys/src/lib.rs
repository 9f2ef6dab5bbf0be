//! Links the MLX that `cargo xtask build` built, and bridges the part of its C++ interface that
//! `mlx-overlay` needs.
//!
//! Use the safe crate `mlx-overlay`. This one is for crates with C++ code of their own that need
//! the same libmlx. Their build scripts read these variables through cargo (`links = "mlx"`):
//!
//! | variable | meaning |
//! |---|---|
//! | `DEP_MLX_PREFIX` | the installed prefix, absolute |
//! | `DEP_MLX_INCLUDE` | include folders, joined like `PATH` |
//! | `DEP_MLX_LIB` | library folder |
//! | `DEP_MLX_VERSION` | MLX's version, for example `0.32.4` |
//! | `DEP_MLX_TREE` | git tree id of the source that was built |
//! | `DEP_MLX_BASE_TREE` | git tree id of the unpatched source |
//! | `DEP_MLX_PRISTINE` | `true` if the overlay was not applied |
//! | `DEP_MLX_BACKEND` | `cpu`, `metal` or `sim` |
//! | `DEP_MLX_CPU` | `true` if the CPU back-end is included |
//! | `DEP_MLX_JIT` | `true` if kernels are compiled at run time |
//! | `DEP_MLX_POLICIES` | `true` if there are kernels for row policies |
//! | `DEP_MLX_DEFINES` | macros that a consumer must define |
//! | `DEP_MLX_CXX_STD` | C++ standard, as the compiler spells it |
//! | `DEP_MLX_METALLIB` | compiled kernels, if there are any |
//!
//! # Environment of the build script
//!
//! - `MLX_OVERLAY_PREFIX`: the absolute path of the prefix to link. Default: `target/mlx/current`
//!   of the workspace.
//! - `MLX_OVERLAY_PRISTINE=1`: link upstream's MLX without the overlay. `MLX_OVERLAY_PREFIX` must
//!   name it.
//! - `DOCS_RS`: build only documentation; nothing is searched for or linked.
//! - `MACOSX_DEPLOYMENT_TARGET`: the oldest macOS for which to compile the bridge. Default: the one
//!   that MLX was built for.
//!
//! # How the kernels are found
//!
//! When a program first uses MLX, the bridge looks for the compiled kernels (`mlx.metallib`), in this
//! order: the file that the environment variable `MLX_OVERLAY_METALLIB` names, next to the program,
//! in `Resources` next to it, in the prefix that the program was linked with, in the folder where MLX
//! was built. An error lists every place that was tried.
//!
//! A prefix is linked only if it was built from the tree that `mlx.lock` names, and if everything
//! that its stamp lists exists.
//!
//! # What the bridge promises
//!
//! Every function that may enter MLX returns `Result`. A C++ exception of any type becomes an
//! error with its text. A call during the end of the thread or the process fails with
//! [`THREAD_ENDING`] or [`PROCESS_ENDING`] instead of touching MLX's destroyed variables, and a call
//! in a child of `fork` fails with [`PROCESS_FORKED`] (`src/lifetime.h`). Arguments that would crash
//! MLX are rejected (`src/check.h`): empty arrays, parts that do not fit together; indices are
//! clamped. Lazy arrays stay on their thread, because [`Array`] is not `Send`. An evaluation succeeds
//! only if the work on all its streams succeeded (`src/evaluation.h`).
//!
//! Two functions are `unsafe`: [`settle`], because only its caller knows whether an earlier evaluation failed, and
//! [`from_file`], which takes a raw descriptor.
//! The bridge does *not* promise typed errors, or right values in what is computed after a failed
//! evaluation; `mlx-overlay` does.

#![warn(missing_docs)]

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The error text of a call after MLX's variables of this thread were destroyed.
pub const THREAD_ENDING: &str =
    "mlx-overlay: this thread is ending, and MLX's variables in it have been destroyed";

/// The error text of a call after the process began to exit.
pub const PROCESS_ENDING: &str = "mlx-overlay: the process is exiting, and MLX has been closed";

/// The error text of a call in a child of `fork`, if its parent had used MLX before.
pub const PROCESS_FORKED: &str =
    "mlx-overlay: this process was forked from one that had used MLX, so it lacks MLX's threads";

/// The start of the error text for a lack of memory; the number of bytes follows.
pub const OUT_OF_MEMORY: &str = "mlx-overlay: no memory; bytes: ";

/// The properties of the linked MLX, from the stamp of its prefix. Empty if documentation is built
/// without MLX.
pub mod built {
    const fn fact(value: Option<&'static str>) -> &'static str {
        match value {
            Some(value) => value,
            None => "",
        }
    }

    /// MLX's version.
    pub const VERSION: &str = fact(option_env!("MLX_OVERLAY_BUILT_VERSION"));
    /// Git tree id of the source that was built.
    pub const TREE: &str = fact(option_env!("MLX_OVERLAY_BUILT_TREE"));
    /// Git tree id of the unpatched source.
    pub const BASE_TREE: &str = fact(option_env!("MLX_OVERLAY_BUILT_BASE_TREE"));
    /// `true` if the overlay was not applied.
    pub const PRISTINE: &str = fact(option_env!("MLX_OVERLAY_BUILT_PRISTINE"));
    /// `cpu`, `metal` or `sim`.
    pub const BACKEND: &str = fact(option_env!("MLX_OVERLAY_BUILT_BACKEND"));
    /// `true` if the CPU back-end is included.
    pub const CPU: &str = fact(option_env!("MLX_OVERLAY_BUILT_CPU"));
    /// `true` if Metal kernels are compiled at run time.
    pub const JIT: &str = fact(option_env!("MLX_OVERLAY_BUILT_JIT"));
    /// The installed prefix.
    pub const PREFIX: &str = fact(option_env!("MLX_OVERLAY_BUILT_PREFIX"));
}

fn thread_ending() -> &'static str {
    THREAD_ENDING
}

fn process_ending() -> &'static str {
    PROCESS_ENDING
}

fn process_forked() -> &'static str {
    PROCESS_FORKED
}

fn out_of_memory() -> &'static str {
    OUT_OF_MEMORY
}

/// Whether MLX has kernels for weights of this format.
fn is_format(format: &WeightFormat) -> bool {
    let mode = mlx_terms::Mode::from_number(format.mode);
    let unsigned = |value: i32| u32::try_from(value).ok();
    let format = mode
        .zip(unsigned(format.bits))
        .zip(unsigned(format.group_size));
    format.is_some_and(|((mode, bits), group_size)| {
        mlx_terms::Format::new(mode, bits, group_size).is_ok()
    })
}

/// A policy hook: a closure that decides for one operation. Any thread that evaluates may call it.
///
/// MLX owns its `Box` after [`set_policy_hook`], and drops it only when no call of it is running.
pub struct PolicyHook {
    answer: Box<Answer>,
}

/// The closure of a [`PolicyHook`].
pub type Answer = dyn Fn(&RowProblem) -> Result<RowPolicy, String> + Send + Sync;

impl PolicyHook {
    /// A hook with this closure. It declines with the kind -1; an error fails the evaluation that called it.
    #[must_use]
    pub fn new(answer: Box<Answer>) -> Box<Self> {
        Box::new(Self { answer })
    }

    /// A panic becomes an error, since it must not unwind through C++.
    fn decide(&self, problem: &RowProblem) -> Result<RowPolicy, String> {
        // The closure is `Sync` and is called through `&`, so a panic leaves its state no worse than that of a `Mutex`
        // or an atomic that another thread sees.
        let answer = AssertUnwindSafe(|| (self.answer)(problem));
        catch_unwind(answer).unwrap_or_else(|panic| {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned());
            Err(match text {
                Some(text) => format!("it panicked: {text}"),
                None => "it panicked".to_owned(),
            })
        })
    }
}

/// Drops a hook that MLX no longer calls. No panic may unwind from here, as in `decide`.
fn retire(hook: Box<PolicyHook>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(hook)));
}

pub use bridge::*;

// The macro's output has no SAFETY comments; each declaration below documents what its C++ side
// checks. Clippy does not see the sections on safety that the macro passes on.
#[allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
#[cxx::bridge(namespace = "mlx_overlay")]
mod bridge {
    /// A device on which work runs.
    #[derive(Debug)]
    enum DeviceKind {
        /// The CPU.
        Cpu,
        /// The GPU of MLX's Metal back-end.
        Gpu,
    }

    /// The element types that the bridge supports.
    #[derive(Debug)]
    enum ElementKind {
        /// `float`
        F32,
        /// `_Float16`
        F16,
        /// bfloat16
        Bf16,
        /// `uint32_t`
        U32,
        /// `uint8_t`
        U8,
        /// `int8_t`
        I8,
        /// `int16_t`
        I16,
        /// `int32_t`
        I32,
        /// `int64_t`
        I64,
        /// `uint16_t`
        U16,
        /// `uint64_t`
        U64,
        /// `bool`
        Bool,
    }

    /// A comparison of two elements.
    #[derive(Debug)]
    enum Comparison {
        /// `==`
        Equal,
        /// `!=`
        NotEqual,
        /// `<`
        Less,
        /// `<=`
        LessEqual,
        /// `>`
        Greater,
        /// `>=`
        GreaterEqual,
    }

    /// A rotary position embedding.
    #[derive(Clone, Copy, Debug)]
    struct Rotation {
        /// How much of the last dimension is rotated, from its start.
        dims: i32,
        /// Whether the two elements of a pair are adjacent, instead of in the two halves.
        traditional: bool,
        /// Base of the frequencies, if none are given.
        base: f32,
        /// Factor for positions.
        scale: f32,
    }

    /// The memory of MLX's allocator, in bytes.
    #[derive(Clone, Copy, Debug)]
    struct MemoryUse {
        /// Used by arrays.
        active: usize,
        /// The highest `active` so far.
        peak: usize,
        /// Kept for later arrays.
        cached: usize,
        /// The limit above which MLX waits for memory to be released.
        limit: usize,
    }

    /// How a matrix is quantized.
    #[derive(Clone, Copy, Debug)]
    struct WeightFormat {
        /// The mode: a number of `mlx_terms::Mode`, equal to MLX's.
        mode: i32,
        /// Bits per weight.
        bits: i32,
        /// Weights that share a scale.
        group_size: i32,
    }

    /// An MLX stream: an index that is unique for the life of the process, and its device.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct RawStream {
        /// The device that does its work.
        device: DeviceKind,
        /// MLX's index.
        index: i32,
    }

    /// A borrowed array, so that slices of arrays can cross the bridge.
    struct ArrayRef<'a> {
        /// The array.
        array: &'a Array,
    }

    /// The result of a quantization.
    struct Quantized {
        /// Packed integers, u32.
        packed: UniquePtr<Array>,
        /// One scale per group.
        scales: UniquePtr<Array>,
        /// One bias per group; null if the mode has none.
        biases: UniquePtr<Array>,
    }

    /// A product of `m` rows with a quantized matrix of `n` rows of `k` values.
    struct ProductShape {
        /// Rows of x.
        m: i32,
        /// Outputs per row.
        n: i32,
        /// Values per row.
        k: i32,
        /// How the matrix is quantized.
        format: WeightFormat,
        /// Type of x and of the result.
        dtype: ElementKind,
    }

    /// `mlx_row_policy` in the overlay's `row_policy.h`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct RowPolicy {
        /// The kind, by its number; -1: none.
        kind: i32,
        /// The most rows of a block; 0: no limit.
        rows: i32,
    }

    /// `mlx_row_problem` in the overlay's `row_policy.h`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct RowProblem {
        /// The primitive, by its number.
        op: i32,
        /// The quantization mode, by its number.
        mode: i32,
        /// The type of the rows, by its number.
        dtype: i32,
        /// Bits per weight.
        bits: i32,
        /// Weights that share a scale.
        group_size: i32,
        /// 1: the weights are (n, k).
        transpose: i32,
        /// Rows that use the same weights; positions.
        m: i32,
        /// Outputs per row.
        n: i32,
        /// Values per row.
        k: i32,
        /// Products, each with m rows; sequences.
        batch: i32,
        /// Matrices from which a gather picks; 1 otherwise.
        experts: i32,
        /// 1: the right-hand indices of a gather are sorted.
        right_sorted: i32,
        /// 1: nvfp4 with a global scale.
        global_scale: i32,
        /// Heads of the queries, or of the values.
        heads: i32,
        /// Heads of the keys.
        kv_heads: i32,
        /// Keys that the last position sees.
        keys: i32,
        /// Index of the stream; -1: none.
        stream: i32,
    }

    /// `mlx_row_plan` in the overlay's `row_policy.h`.
    struct ProductPlan {
        /// The policy in force.
        policy: RowPolicy,
        /// The path, by its number: the kernels that compute the product.
        path: i32,
        /// Whether the path's kernel for a K without a tail is used.
        fast: bool,
        /// The most rows of x per threadgroup; 0 if MLX's matrix kernels decide.
        tile: i32,
        /// Outputs of a row per simdgroup of a streamed kernel.
        outputs: i32,
        /// Simdgroups of a streamed kernel that share x; 0: two, each with its own.
        sharing: i32,
        /// Whether every row has the bits that it has alone.
        identical: bool,
    }

    /// `mlx_row_route` in the overlay's `row_policy.h`.
    struct ProductRoute {
        /// The quantization mode, by its number; -1: any.
        mode: i32,
        /// Bits per weight; 0: any.
        bits: i32,
        /// Weights that share a scale; 0: any number.
        group_size: i32,
        /// Fewest outputs.
        n_min: i32,
        /// Most outputs.
        n_max: i32,
        /// Fewest values per row.
        k_min: i32,
        /// Most values per row.
        k_max: i32,
        /// Fewest rows.
        m_min: i32,
        /// Most rows.
        m_max: i32,
        /// The path, by its number.
        path: i32,
    }

    /// `RowFinding` in the overlay's `row_check.h`: an operation whose rows would not keep their bits.
    struct RowFinding {
        /// The primitive's name.
        primitive: String,
        /// Extents of its first output.
        shape: Vec<i32>,
        /// The operation's stream.
        stream: RawStream,
        /// The problem.
        why: String,
        /// The remedy.
        remedy: String,
    }

    extern "Rust" {
        fn thread_ending() -> &'static str;
        fn process_ending() -> &'static str;
        fn process_forked() -> &'static str;
        fn out_of_memory() -> &'static str;
        fn is_format(format: &WeightFormat) -> bool;

        type PolicyHook;
        fn decide(self: &PolicyHook, problem: &RowProblem) -> Result<RowPolicy>;
        fn retire(hook: Box<PolicyHook>);
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/bridge.h");

        /// An `mlx::core::array`. Neither `Send` nor `Sync`.
        type Array;

        /// Version of the loaded library.
        fn version() -> Result<String>;
        /// Whether MLX has its Metal back-end.
        fn metal_is_available() -> Result<bool>;
        /// Whether the machine has such a device, and MLX a back-end for it.
        fn device_is_available(device: DeviceKind) -> Result<bool>;
        /// A property of a device (`device_name`, `architecture`); empty if MLX does not have it.
        fn device_property(device: DeviceKind, key: &str) -> Result<String>;

        /// The calling thread's default stream of a device; made on first use.
        fn default_stream(device: DeviceKind) -> Result<RawStream>;
        /// Makes a stream for the calling thread.
        fn new_stream(device: DeviceKind) -> Result<RawStream>;
        /// Makes a stream the calling thread's default stream of its device.
        fn set_default_stream(stream: RawStream) -> Result<()>;
        /// Waits for all work that the calling thread has submitted to the stream.
        fn synchronize(stream: RawStream) -> Result<()>;

        /// Copies bytes into a new array. Their number must fit shape and kind.
        fn from_bytes(bytes: &[u8], shape: &[i32], kind: ElementKind) -> Result<UniquePtr<Array>>;
        /// Reads a new array, row-major, from an open file at this offset.
        ///
        /// # Safety
        ///
        /// The descriptor must be open, and stay open during the call.
        unsafe fn from_file(
            file: i32,
            offset: u64,
            shape: &[i32],
            kind: ElementKind,
        ) -> Result<UniquePtr<Array>>;
        /// The extents of the array's dimensions.
        fn shape(array: &Array) -> Result<Vec<i32>>;
        /// The type of the array's elements.
        fn kind(array: &Array) -> Result<ElementKind>;
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/evaluation.h");

        /// An evaluation in progress. Not `Send`.
        type Flight;

        /// Which of an operation's inputs its result depends on: MLX drops inputs that have no effect.
        fn uses(result: &Array, inputs: &[ArrayRef]) -> Result<Vec<bool>>;
        /// Whether both are the same node of MLX's graph.
        fn is_same(a: &Array, b: &Array) -> Result<bool>;
        /// Starts the evaluation of arrays, and appends its streams to `streams` before anything runs. After an error
        /// nothing of it is running. The error may belong to earlier work on these streams; MLX then forgets it.
        fn start(arrays: &[ArrayRef], streams: &mut Vec<RawStream>) -> Result<UniquePtr<Flight>>;
        /// Whether it has ended, successfully or not.
        fn is_over(flight: &Flight) -> Result<bool>;
        /// Waits until it has ended. Every call returns an error if any work on one of its streams failed.
        fn finish(flight: &Flight) -> Result<()>;
        /// Evaluates the arrays and waits for them.
        fn eval(arrays: &[ArrayRef]) -> Result<()>;
        /// Evaluates an array. Returns a row-contiguous one with its own descriptor, over memory that MLX
        /// will not write to again. From then on it never changes.
        ///
        /// # Safety
        ///
        /// No earlier evaluation of the array, or of an array that it depends on, may have failed. MLX
        /// marks arrays as evaluated when their kernels are queued, so after a failure their memory is
        /// undefined.
        unsafe fn settle(array: &Array, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// A new descriptor over the memory of an array that `settle` or this function returned. It does
        /// not change that array, so a type that crosses threads can be built on it.
        fn share(settled: &Array) -> Result<UniquePtr<Array>>;
        /// The memory of an array that `settle` returned, row-major.
        fn bytes(settled: &Array) -> Result<&[u8]>;
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/shape.h");

        /// An array of this shape whose elements all equal that of `value`.
        fn full(shape: &[i32], value: &Array, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// The array with its elements converted.
        fn as_type(array: &Array, kind: ElementKind, stream: RawStream)
        -> Result<UniquePtr<Array>>;
        /// The same elements, row-major, in another shape.
        fn reshape(array: &Array, shape: &[i32], stream: RawStream) -> Result<UniquePtr<Array>>;
        /// The array with its dimensions in reverse order.
        fn transpose(array: &Array, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// The array with its dimensions in this order.
        fn transpose_axes(
            array: &Array,
            axes: &[i32],
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// The elements from `start` up to `stop`, which is excluded. MLX clamps positions out of range.
        fn slice(
            array: &Array,
            start: &[i32],
            stop: &[i32],
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// The array with the elements from `start` up to `stop` replaced; `stop` is excluded.
        fn slice_update(
            array: &Array,
            update: &Array,
            start: &[i32],
            stop: &[i32],
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// The entries of the first dimension at these indices.
        fn take_rows(array: &Array, indices: &[u32], stream: RawStream)
        -> Result<UniquePtr<Array>>;
        /// The entries of a dimension at these indices, which are clamped first.
        fn take(
            array: &Array,
            indices: &Array,
            axis: i32,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// The arrays, joined along a dimension.
        fn concatenate(
            arrays: &[ArrayRef],
            axis: i32,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/elementwise.h");

        /// Element-wise sum.
        fn add(a: &Array, b: &Array, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// Element-wise product.
        fn multiply(a: &Array, b: &Array, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// Logistic function of each element.
        fn sigmoid(array: &Array, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// Compares each pair of elements; returns bool.
        fn compare(
            a: &Array,
            b: &Array,
            how: Comparison,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// Elements of `a` where the condition is true, those of `b` elsewhere.
        fn select(
            condition: &Array,
            a: &Array,
            b: &Array,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/order.h");

        /// The index of the largest element along the last dimension.
        fn argmax(array: &Array, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// Softmax along a dimension, summed in float32.
        fn softmax(array: &Array, axis: i32, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// The elements in ascending order along a dimension.
        fn sort(array: &Array, axis: i32, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// Indices that partition a dimension: at `kth` that of the `kth` smallest element, before it those of elements
        /// that are not larger, after it those of elements that are not smaller.
        fn argpartition(
            array: &Array,
            kth: i32,
            axis: i32,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// Cumulative sums along a dimension.
        fn cumsum(array: &Array, axis: i32, stream: RawStream) -> Result<UniquePtr<Array>>;
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/product.h");

        /// Matrix product.
        fn matmul(a: &Array, b: &Array, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// `alpha` times the product of `a` and `b`, plus `beta` times `c`.
        fn addmm(
            c: &Array,
            a: &Array,
            b: &Array,
            alpha: f32,
            beta: f32,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// Quantizes the rows of a matrix, or of several stacked matrices.
        fn quantize(w: &Array, format: &WeightFormat, stream: RawStream) -> Result<Quantized>;
        /// Inverse of `quantize`, from packed values, scales and, if affine, biases.
        fn dequantize(
            parts: &[ArrayRef],
            format: &WeightFormat,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// `x` times the transpose of a quantized matrix, given by the same parts.
        fn quantized_matmul(
            x: &Array,
            parts: &[ArrayRef],
            format: &WeightFormat,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// Products of matrices of `a` and `b` that are picked by indices, which are clamped first. Without `lhs`, each
        /// matrix of `a` is used once.
        fn gather_matmul(
            a: &Array,
            b: &Array,
            lhs: &[ArrayRef],
            rhs: &Array,
            sorted: bool,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// The same with the transposes of stacked quantized matrices.
        fn gather_quantized_matmul(
            x: &Array,
            parts: &[ArrayRef],
            lhs: &[ArrayRef],
            rhs: &Array,
            format: &WeightFormat,
            sorted: bool,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/neural.h");

        /// Root-mean-square normalization along the last dimension.
        fn rms_norm(
            x: &Array,
            weight: &Array,
            eps: f32,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// Normalization by mean and deviation along the last dimension. `weight` and `bias` have at most one array.
        fn layer_norm(
            x: &Array,
            weight: &[ArrayRef],
            bias: &[ArrayRef],
            eps: f32,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// Rotary position embedding of `[batch, .., positions, dims]`. `frequencies` has at most one array, and `offset`
        /// one element or one per sequence.
        fn rope(
            x: &Array,
            rotation: &Rotation,
            frequencies: &[ArrayRef],
            offset: &Array,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// Scaled dot-product attention of `[batch, heads, positions, dims]`. `mask` and `sinks` have at most one array.
        fn attention(
            parts: &[ArrayRef],
            scale: f32,
            causal: bool,
            mask: &[ArrayRef],
            sinks: &[ArrayRef],
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/random.h");

        /// Makes several keys from one.
        fn random_split(key: &Array, count: i32, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// Numbers from `low` (included) to `high` (excluded).
        fn random_uniform(
            shape: &[i32],
            low: f32,
            high: f32,
            kind: ElementKind,
            key: &Array,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// An index along the last dimension, drawn with the probabilities of the elements' softmax.
        fn random_categorical(
            logits: &Array,
            key: &Array,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/memory.h");

        /// The memory of MLX's allocator.
        fn memory_use() -> Result<MemoryUse>;
        /// Resets the peak.
        fn reset_peak_memory() -> Result<()>;
        /// Sets the limit above which MLX waits for memory to be released; returns the previous one.
        fn set_memory_limit(bytes: usize) -> Result<usize>;
        /// Sets how much memory MLX keeps for later arrays; returns the previous limit.
        fn set_cache_limit(bytes: usize) -> Result<usize>;
        /// Releases the memory that is kept for later arrays.
        fn clear_cache() -> Result<()>;
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/policy.h");

        /// Whether the linked MLX has the overlay's policies; pristine MLX does not. If it has none, the policy
        /// functions fail.
        fn has_policies() -> bool;
        /// Whether it has kernels for them. If not, the functions for plans, routes, counters and recordings fail
        /// too.
        fn has_row_kernels() -> bool;
        /// Makes a GPU stream for the calling thread with a permanent policy.
        fn new_policy_stream(policy: RowPolicy) -> Result<RawStream>;
        /// Gives a stream its policy, once and before its first work.
        fn set_stream_policy(index: i32, policy: RowPolicy) -> Result<()>;
        /// The policy of the stream with this index; the kind -1 if it has none.
        fn stream_policy(index: i32) -> Result<RowPolicy>;
        /// The process's policy, from `MLX_ROW_POLICY`.
        fn process_policy() -> Result<RowPolicy>;
        /// Registers a hook. The previous one is dropped once no call of it is running.
        fn set_policy_hook(hook: Box<PolicyHook>) -> Result<()>;
        /// Removes the hook, no matter which code registered it.
        fn remove_policy_hook() -> Result<()>;
        /// Whether the calling thread is inside a hook.
        fn in_policy_hook() -> bool;
        /// How a product would be computed on this device and stream.
        fn plan_product(product: &ProductShape, stream: RawStream) -> Result<ProductPlan>;
        /// Replaces the routing table.
        fn set_routes(routes: &[ProductRoute]) -> Result<()>;
        /// Whether the GPU has matrix units that MLX uses.
        fn has_matrix_units() -> Result<bool>;
        /// How many products took each path, by its number: two counts per path, the second for its fast kernel.
        fn path_counts() -> Result<Vec<u64>>;
        /// Sets the counters to zero.
        fn reset_path_counts() -> Result<()>;
        /// Begins to record the names of the kernels that this thread requests from its device.
        fn record_kernels() -> Result<()>;
        /// Ends the recording; each name ends with a newline.
        fn recorded_kernels() -> Result<String>;
        /// The operations that an evaluation of the arrays would run and whose rows would not keep their bits.
        fn check_operations(arrays: &[ArrayRef], stream: RawStream) -> Result<Vec<RowFinding>>;
    }
}
