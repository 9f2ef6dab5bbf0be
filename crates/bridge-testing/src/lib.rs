//! Functions for the tests of `mlx-overlay-sys` and `mlx-overlay` that the bridge does not have: deliberate failures,
//! access to hidden state, and products and streams that the safe interface lacks.

pub use bridge::*;

// The macro's output has no SAFETY comments; each function below checks its arguments in C++.
#[allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
#[cxx::bridge(namespace = "mlx_overlay::testing")]
mod bridge {
    #[namespace = "mlx_overlay"]
    unsafe extern "C++" {
        include!("mlx-overlay-sys/src/bridge.h");
        include!("mlx-overlay-sys/src/lib.rs.h");

        /// An `mlx::core::array`.
        type Array = mlx_overlay_sys::Array;
        /// An MLX stream.
        type RawStream = mlx_overlay_sys::RawStream;
    }

    unsafe extern "C++" {
        include!("bridge-testing/src/faults.h");

        /// Throws an `int`.
        fn throw_int() -> Result<()>;
        /// Throws a `std::runtime_error` with this text.
        fn throw_text(text: &str) -> Result<()>;
        /// Whether MLX owns the array's memory and so may overwrite it with a result.
        fn memory_is_owned(array: &Array) -> Result<bool>;
        /// An array like `input` whose evaluation fails on the stream's own thread, after it was scheduled.
        fn fails_when_run(input: &Array, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// Registers a policy hook that always returns this kind and these rows.
        fn hook_answers(kind: i32, rows: i32) -> Result<()>;
        /// Registers a policy hook that throws.
        fn hook_throws() -> Result<()>;
        /// Removes the policy hook.
        fn hook_is_gone() -> Result<()>;

        include!("bridge-testing/src/mlx_c.h");

        /// Links the part of mlx-c that changes MLX's default stream into the program.
        fn link_mlx_c();

        include!("bridge-testing/src/probe.h");

        /// Names of products of several rows, one for every kind that reaches a quantized kernel.
        fn probe_cases() -> Result<Vec<String>>;
        /// Computes such a product on a GPU stream, once together and once row by row. Returns how many outputs have
        /// different bits.
        fn probe_rows_that_differ(name: &str, rows: i32, stream: RawStream) -> Result<i64>;
        /// Computes such a product only together, so that [`mlx_overlay_sys::recorded_kernels`] shows its kernels.
        fn probe_together(name: &str, rows: i32, stream: RawStream) -> Result<()>;
        /// Computes one product on two streams in one function, plain and compiled. Returns how many outputs differ
        /// between plain and compiled, on the first stream and on the second, and between the streams.
        fn probe_compiled(first: RawStream, second: RawStream) -> Result<Vec<i64>>;
        /// Computes causal attention of a few positions on a GPU stream. Returns how many outputs have other bits than
        /// the same positions alone: as it is, compiled, and compiled without shapes.
        fn probe_compiled_attention(stream: RawStream) -> Result<Vec<i64>>;
        /// Exports a product on a GPU stream to a file, imports it and returns its result, not evaluated.
        fn probe_imported(file: &str, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// Builds a product here and evaluates it on another thread. Returns the error's text; empty if there is none.
        fn probe_on_another_thread(stream: RawStream) -> Result<String>;
        /// Evaluates a product on a thread-local stream with the index of a GPU stream, if there is one. Returns the
        /// index.
        fn probe_thread_local(stream: RawStream) -> Result<i32>;

        include!("bridge-testing/src/graphs.h");

        /// The graph of that name, built on a GPU stream and not evaluated.
        fn probe_graph(name: &str, stream: RawStream) -> Result<UniquePtr<Array>>;
        /// Adds up so many rows or columns of so many terms, together and one by one. Returns how many sums have
        /// different bits.
        fn probe_sums_that_differ(
            sums: i32,
            terms: i32,
            column: bool,
            stream: RawStream,
        ) -> Result<i64>;
    }
}
