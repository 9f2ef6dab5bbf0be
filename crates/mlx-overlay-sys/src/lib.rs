//! Links the MLX that `cargo xtask build` made, and bridges the part of its C++ interface that
//! `mlx-overlay` needs.
//!
//! Use the safe crate `mlx-overlay`. This one is for crates that need the same libmlx for C++ of
//! their own; their build scripts read, through cargo (`links = "mlx"`):
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
//! | `DEP_MLX_CPU` | `true` if the CPU back-end is in |
//! | `DEP_MLX_JIT` | `true` if kernels are compiled at run time |
//! | `DEP_MLX_POLICIES` | `true` if there are kernels for row policies |
//! | `DEP_MLX_DEFINES` | macros that a consumer has to define |
//! | `DEP_MLX_CXX_STD` | C++ standard, as the compiler spells it |
//! | `DEP_MLX_METALLIB` | compiled kernels, where there are any |
//!
//! # Environment of the build script
//!
//! - `MLX_OVERLAY_PREFIX`: the prefix to link, by its whole path; without it, `target/mlx/current` of
//!   the workspace.
//! - `MLX_OVERLAY_PRISTINE=1`: link upstream's MLX without the overlay. `MLX_OVERLAY_PREFIX` must
//!   name it.
//! - `DOCS_RS`: build documentation only; nothing is looked for or linked.
//! - `MACOSX_DEPLOYMENT_TARGET`: the oldest macOS to compile the bridge for; without it, the one
//!   that MLX was built for.
//!
//! # Where the kernels are found
//!
//! When a program first uses MLX, the bridge looks for the compiled kernels (`mlx.metallib`): in the
//! file that the environment variable `MLX_OVERLAY_METALLIB` names, else beside the program, else in
//! `Resources` beside it, else in the prefix that the program was linked with, else where MLX was
//! built. An error names every place that was tried.
//!
//! A prefix is linked only if it was built from the tree that `mlx.lock` names, and if all that its
//! stamp lists is there.
//!
//! # What the bridge promises
//!
//! Every function that may enter MLX returns `Result`: a C++ exception of any type arrives as an
//! error with its text, and a call made while the thread or the process is being torn down arrives
//! as [`THREAD_ENDING`] or [`PROCESS_ENDING`] instead of touching MLX's destroyed variables, one in a
//! child of `fork` as [`PROCESS_FORKED`] (`src/lifetime.h`). What MLX would not survive is checked
//! (`src/check.h`): empty arrays, parts that do not fit together; indices are bounded. Lazy arrays
//! stay on their thread, for [`Array`] is not `Send`. An evaluation succeeds only if the work on
//! every stream that had part in it did (`src/evaluation.h`).
//!
//! Two functions are `unsafe`: [`settle`], for only its caller knows whether an earlier evaluation failed, and
//! [`from_file`], which takes a raw descriptor.
//! What the bridge does *not* promise, and `mlx-overlay` does: errors of types, and that what is
//! computed after a failed evaluation has the values that it should.

#![warn(missing_docs)]

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Text of the error of a call made after MLX's variables of this thread were destroyed.
pub const THREAD_ENDING: &str = "mlx-overlay: this thread is ending, and MLX's part of it is gone";

/// Text of the error of a call made after the process began to exit.
pub const PROCESS_ENDING: &str = "mlx-overlay: the process is exiting, and MLX is closed";

/// Text of the error of a call in a child that a process made by `fork` after it had used MLX.
pub const PROCESS_FORKED: &str =
    "mlx-overlay: this process was forked from one that had used MLX, whose threads it lacks";

/// How the text of an error for want of memory begins; the number of bytes follows.
pub const OUT_OF_MEMORY: &str = "mlx-overlay: no memory; bytes: ";

/// What was linked, as the stamp of its prefix says. Empty where documentation is built without
/// MLX.
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
    /// `true` if the CPU back-end is in.
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

/// Whether MLX has kernels for weights of that format.
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

/// A hook for policies: a closure that answers for one operation, called by any thread that evaluates.
///
/// It lives behind a `Box` that MLX owns from [`set_policy_hook`] on, and is dropped only when no call of it runs.
pub struct PolicyHook {
    answer: Box<Answer>,
}

/// The closure of a [`PolicyHook`].
pub type Answer = dyn Fn(&RowProblem) -> Result<RowPolicy, String> + Send + Sync;

impl PolicyHook {
    /// A hook that answers so. The kind -1 declines; an error is one of the evaluation that asked.
    #[must_use]
    pub fn new(answer: Box<Answer>) -> Box<Self> {
        Box::new(Self { answer })
    }

    /// A panic becomes an error, since it must not unwind through C++.
    fn decide(&self, problem: &RowProblem) -> Result<RowPolicy, String> {
        // What the closure shares with others is behind `&`: it is `Sync`, and after a panic no less so than a
        // `Mutex` or an atomic that another thread sees.
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

/// Drops a hook that MLX does not call any more. As in `decide`, no panic leaves.
fn retire(hook: Box<PolicyHook>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(hook)));
}

pub use bridge::*;

// The macro's own output has no SAFETY comments; each declaration below says what its C++ side
// checks. Clippy does not see the sections on safety that the macro passes on.
#[allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
#[cxx::bridge(namespace = "mlx_overlay")]
mod bridge {
    /// Where work runs.
    #[derive(Debug)]
    enum DeviceKind {
        /// The host's processor.
        Cpu,
        /// The GPU that MLX's Metal back-end sees.
        Gpu,
    }

    /// Types of elements that cross the bridge.
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

    /// What a comparison asks of two elements.
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
        /// Leading part of the last dimension that is rotated.
        dims: i32,
        /// Whether pairs lie side by side, rather than in the two halves.
        traditional: bool,
        /// Base of the frequencies, if none are given.
        base: f32,
        /// What positions are multiplied by.
        scale: f32,
    }

    /// What MLX's allocator holds, in bytes.
    #[derive(Clone, Copy, Debug)]
    struct MemoryUse {
        /// In arrays.
        active: usize,
        /// The most that was in arrays.
        peak: usize,
        /// Kept for later arrays.
        cached: usize,
        /// From where on MLX waits for memory to be released.
        limit: usize,
    }

    /// How a matrix is quantized.
    #[derive(Clone, Copy, Debug)]
    struct WeightFormat {
        /// What the values mean: a number of `mlx_terms::Mode`, which are MLX's.
        mode: i32,
        /// Bits a weight.
        bits: i32,
        /// Weights that share a scale.
        group_size: i32,
    }

    /// An MLX stream: an index that is unique for the life of the process, and its device.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct RawStream {
        /// Where its work runs.
        device: DeviceKind,
        /// MLX's index.
        index: i32,
    }

    /// A borrowed array, so that a slice of them can cross.
    struct ArrayRef<'a> {
        /// The array.
        array: &'a Array,
    }

    /// What a quantization gives.
    struct Quantized {
        /// Packed integers, u32.
        packed: UniquePtr<Array>,
        /// One scale a group.
        scales: UniquePtr<Array>,
        /// One bias a group; null where the mode has none.
        biases: UniquePtr<Array>,
    }

    /// A product of `m` rows with a quantized matrix of `n` rows of `k` values.
    struct ProductShape {
        /// Rows of x.
        m: i32,
        /// Outputs a row.
        n: i32,
        /// Values a row.
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
        /// Bits a weight.
        bits: i32,
        /// Weights that share a scale.
        group_size: i32,
        /// 1: the weights are (n, k).
        transpose: i32,
        /// Rows that meet the same weights; positions.
        m: i32,
        /// Outputs a row.
        n: i32,
        /// Values a row.
        k: i32,
        /// Products, each with m rows; sequences.
        batch: i32,
        /// Matrices among which a gather picks; else 1.
        experts: i32,
        /// 1: the right-hand indices of a gather are sorted.
        right_sorted: i32,
        /// 1: nvfp4 with a scale for all weights.
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
        /// What computes the product, by its number.
        path: i32,
        /// Whether it is the path's kernel for K that needs no tail.
        fast: bool,
        /// The most rows of x that a threadgroup serves; 0 where MLX's matrix kernels decide.
        tile: i32,
        /// Outputs of a row that one simdgroup of a streamed kernel computes.
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
        /// Bits a weight; 0: any.
        bits: i32,
        /// Weights that share a scale; 0: any number.
        group_size: i32,
        /// Fewest outputs.
        n_min: i32,
        /// Most outputs.
        n_max: i32,
        /// Fewest values a row.
        k_min: i32,
        /// Most values a row.
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
        /// The stream that it is on.
        stream: RawStream,
        /// What is wrong.
        why: String,
        /// What to do.
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

        /// Version of the library that is running.
        fn version() -> Result<String>;
        /// Whether MLX has its Metal back-end.
        fn metal_is_available() -> Result<bool>;
        /// Whether there is such a device, and MLX has a back-end for it.
        fn device_is_available(device: DeviceKind) -> Result<bool>;
        /// A property of a device (`device_name`, `architecture`), empty where MLX has none of that
        /// name.
        fn device_property(device: DeviceKind, key: &str) -> Result<String>;

        /// The calling thread's default stream of a device; made on first use.
        fn default_stream(device: DeviceKind) -> Result<RawStream>;
        /// Makes a stream for the calling thread.
        fn new_stream(device: DeviceKind) -> Result<RawStream>;
        /// Makes a stream the calling thread's default of its device.
        fn set_default_stream(stream: RawStream) -> Result<()>;
        /// Waits for all work that the calling thread has put on the stream.
        fn synchronize(stream: RawStream) -> Result<()>;

        /// Copies bytes into a new array. Their number must fit shape and kind.
        fn from_bytes(bytes: &[u8], shape: &[i32], kind: ElementKind) -> Result<UniquePtr<Array>>;
        /// Reads a new array, row-major, from an open file at this offset.
        ///
        /// # Safety
        ///
        /// The descriptor is open, and stays so meanwhile.
        unsafe fn from_file(
            file: i32,
            offset: u64,
            shape: &[i32],
            kind: ElementKind,
        ) -> Result<UniquePtr<Array>>;
        /// Extents of the array's dimensions.
        fn shape(array: &Array) -> Result<Vec<i32>>;
        /// Type of the array's elements.
        fn kind(array: &Array) -> Result<ElementKind>;
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/evaluation.h");

        /// An evaluation that was started. Not `Send`.
        type Flight;

        /// Which of the inputs of an operation its result is computed from: MLX leaves out those that make no
        /// difference.
        fn uses(result: &Array, inputs: &[ArrayRef]) -> Result<Vec<bool>>;
        /// Whether they are one node of MLX's graph.
        fn is_same(a: &Array, b: &Array) -> Result<bool>;
        /// Starts the evaluation of arrays, and adds the streams that have part in it before anything runs. An error
        /// leaves nothing of it running; it may be one of earlier work on these streams, which MLX then forgets.
        fn start(arrays: &[ArrayRef], streams: &mut Vec<RawStream>) -> Result<UniquePtr<Flight>>;
        /// Whether it is over, well or badly.
        fn is_over(flight: &Flight) -> Result<bool>;
        /// Waits until it is over. An error, however often this is called, if any work failed on one of its streams.
        fn finish(flight: &Flight) -> Result<()>;
        /// Evaluates the arrays and waits for them.
        fn eval(arrays: &[ArrayRef]) -> Result<()>;
        /// Evaluates an array, and gives a row-contiguous one with a descriptor of its own, over
        /// memory that MLX will not write to again. Nothing of it changes from then on.
        ///
        /// # Safety
        ///
        /// No evaluation that the array took part in, or one of those that it is computed from,
        /// failed before. MLX marks arrays as evaluated when their kernels are queued, so after a
        /// failure their memory may hold anything.
        unsafe fn settle(array: &Array, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// A new descriptor over the memory of an array that `settle` or this returned. It changes
        /// nothing of that array: a type that may cross threads can be built on it.
        fn share(settled: &Array) -> Result<UniquePtr<Array>>;
        /// The memory of an array that `settle` returned, row-major.
        fn bytes(settled: &Array) -> Result<&[u8]>;
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/shape.h");

        /// An array of this shape whose elements all are the one of `value`.
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
        /// The elements from `start` to before `stop`. MLX clamps what is out of range.
        fn slice(
            array: &Array,
            start: &[i32],
            stop: &[i32],
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// The array with the elements from `start` to before `stop` replaced.
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
        /// The entries of a dimension at these indices, which are bounded first: past the end, the last one.
        fn take(
            array: &Array,
            indices: &Array,
            axis: i32,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// The arrays behind one another along a dimension.
        fn concatenate(
            arrays: &[ArrayRef],
            axis: i32,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/elementwise.h");

        /// Sum, element by element.
        fn add(a: &Array, b: &Array, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// Product, element by element.
        fn multiply(a: &Array, b: &Array, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// Logistic function of each element.
        fn sigmoid(array: &Array, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// Whether each pair of elements compares so: bool.
        fn compare(
            a: &Array,
            b: &Array,
            how: Comparison,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// Elements of `a` where the condition holds, else of `b`.
        fn select(
            condition: &Array,
            a: &Array,
            b: &Array,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/order.h");

        /// Where the largest element lies along the last dimension.
        fn argmax(array: &Array, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// Softmax along a dimension, summed in float32.
        fn softmax(array: &Array, axis: i32, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// The elements in ascending order along a dimension.
        fn sort(array: &Array, axis: i32, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// Indices along a dimension with that of the `kth` smallest element in its place, none of a larger one before
        /// it and none of a smaller one behind.
        fn argpartition(
            array: &Array,
            kth: i32,
            axis: i32,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// Sums of the elements up to each one along a dimension.
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
        /// Quantization of a matrix, or of several behind one another, along the rows.
        fn quantize(w: &Array, format: &WeightFormat, stream: RawStream) -> Result<Quantized>;
        /// Inverse of `quantize`, of packed values, scales and, for affine, biases.
        fn dequantize(
            parts: &[ArrayRef],
            format: &WeightFormat,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// `x` times the transpose of a quantized matrix, of the same parts.
        fn quantized_matmul(
            x: &Array,
            parts: &[ArrayRef],
            format: &WeightFormat,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// Products of matrices of `a` and `b` that indices pick, which are bounded first. Without `lhs` each matrix of
        /// `a` is taken once.
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
        /// Normalization by mean and deviation along the last dimension. `weight` and `bias` have one array or none.
        fn layer_norm(
            x: &Array,
            weight: &[ArrayRef],
            bias: &[ArrayRef],
            eps: f32,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// Rotary position embedding of `[batch, .., positions, dims]`. `frequencies` has one array or none, and `offset`
        /// one element or one a sequence.
        fn rope(
            x: &Array,
            rotation: &Rotation,
            frequencies: &[ArrayRef],
            offset: &Array,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// Scaled dot-product attention of `[batch, heads, positions, dims]`. `mask` and `sinks` have one array or none.
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

        /// So many keys from one.
        fn random_split(key: &Array, count: i32, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// Numbers from `low` to below `high`.
        fn random_uniform(
            shape: &[i32],
            low: f32,
            high: f32,
            kind: ElementKind,
            key: &Array,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
        /// An index along the last dimension, with the probabilities of the elements' softmax.
        fn random_categorical(
            logits: &Array,
            key: &Array,
            stream: RawStream,
        ) -> Result<UniquePtr<Array>>;
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/memory.h");

        /// What MLX's allocator holds.
        fn memory_use() -> Result<MemoryUse>;
        /// Counts the peak anew.
        fn reset_peak_memory() -> Result<()>;
        /// From where on MLX waits for memory to be released; the former limit.
        fn set_memory_limit(bytes: usize) -> Result<usize>;
        /// What MLX keeps for later arrays at most; the former limit.
        fn set_cache_limit(bytes: usize) -> Result<usize>;
        /// Releases what is kept for later arrays.
        fn clear_cache() -> Result<()>;
    }

    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/policy.h");

        /// Whether the linked MLX has the overlay's policies: pristine MLX has not. Where it has none, the functions of
        /// policies fail.
        fn has_policies() -> bool;
        /// Whether it has kernels for them. Where it has none, the functions of plans, routes, counters and recordings
        /// fail, too.
        fn has_row_kernels() -> bool;
        /// Makes a GPU stream for the calling thread with a policy that stays.
        fn new_policy_stream(policy: RowPolicy) -> Result<RawStream>;
        /// Gives a stream its policy, once and before its first work.
        fn set_stream_policy(index: i32, policy: RowPolicy) -> Result<()>;
        /// The policy of the stream of that index; the kind -1 if it was given none.
        fn stream_policy(index: i32) -> Result<RowPolicy>;
        /// The process's policy, from `MLX_ROW_POLICY`.
        fn process_policy() -> Result<RowPolicy>;
        /// Registers a hook in place of the last one, which is dropped once no call of it runs.
        fn set_policy_hook(hook: Box<PolicyHook>) -> Result<()>;
        /// Takes the hook away, whoever registered it.
        fn remove_policy_hook() -> Result<()>;
        /// Whether the calling thread is inside of a hook.
        fn in_policy_hook() -> bool;
        /// What a product would do on this device and stream.
        fn plan_product(product: &ProductShape, stream: RawStream) -> Result<ProductPlan>;
        /// Replaces the routing table.
        fn set_routes(routes: &[ProductRoute]) -> Result<()>;
        /// Whether the GPU has matrix units that MLX uses.
        fn has_matrix_units() -> Result<bool>;
        /// How many products took each path, by its number: two a path, the second for its fast kernel.
        fn path_counts() -> Result<Vec<u64>>;
        /// Sets the counters to zero.
        fn reset_path_counts() -> Result<()>;
        /// Begins to record the names of the kernels that this thread asks its device for.
        fn record_kernels() -> Result<()>;
        /// Ends the recording; each name ends with a newline.
        fn recorded_kernels() -> Result<String>;
        /// The operations that an evaluation of the arrays would run and whose rows would not keep their bits.
        fn check_operations(arrays: &[ArrayRef], stream: RawStream) -> Result<Vec<RowFinding>>;
    }
}
