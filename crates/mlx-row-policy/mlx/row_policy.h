// Row policies: who asks that the rows of an operation keep their bits, and
// what the operation then takes. The C interface of everything that the overlay
// adds to MLX.
//
// Functions that can fail return 0 on success and -1 on an error, which
// `mlx_row_last_error` then explains.

#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MLX_ROW_API __attribute__((visibility("default")))

/// The kinds of policies. A block is up to so many rows as the policy says;
/// more are a prompt, which every kind computes as MLX does. A row alone is one
/// position of one sequence over the keys that it sees, under `default`.
enum {
  /// MLX's own choice.
  MLX_ROW_POLICY_DEFAULT = 0,
  /// Each row of a block has the bits that it has alone, by kernels that read
  /// weights once for up to MLX_ROW_TILE_ROWS rows.
  MLX_ROW_POLICY_EXACT = 1,
  /// The same bits by MLX's own kernels for one row, row by row.
  MLX_ROW_POLICY_NARROW = 2,
  /// Each row of a block has the same bits whatever the number of rows, one
  /// included: those of qmv_wide. What qmv_wide cannot compute is as narrow.
  MLX_ROW_POLICY_WIDE = 3,
  MLX_ROW_POLICY_COUNT,
};

/// A policy: a kind and the most rows of a block, 0 for no limit. What a gather
/// sees are picks; a block of theirs is MLX_ROW_PICKS_PER_ROW times as large.
typedef struct mlx_row_policy {
  int32_t kind; // MLX_ROW_POLICY_*, or MLX_ROW_DECLINE
  int32_t rows;
} mlx_row_policy;

/// The kind that a hook answers when it has no opinion, and that of a stream
/// that was given no policy.
#define MLX_ROW_DECLINE (-1)

/// The rows of a block unless a policy says otherwise.
#define MLX_ROW_BLOCK_ROWS 16

/// Picks of a gather that count as a row: a token picks several experts.
#define MLX_ROW_PICKS_PER_ROW 32

/// The most rows that one pass over the weights serves under `exact`.
#define MLX_ROW_TILE_ROWS 8

/// The longest text of a policy, the final zero included.
#define MLX_ROW_TEXT_SIZE 32

/// The primitive that computes the rows.
enum {
  MLX_ROW_OP_QUANTIZED_MATMUL = 0,
  MLX_ROW_OP_GATHER_QMM = 1,
  MLX_ROW_OP_QQ_MATMUL = 2,
  MLX_ROW_OP_GATHER_QQMM = 3,
  MLX_ROW_OP_MATMUL = 4,
  MLX_ROW_OP_ADDMM = 5,
  MLX_ROW_OP_GATHER_MM = 6,
  MLX_ROW_OP_ATTENTION = 7,
  MLX_ROW_OP_GATED_DELTA = 8,
  MLX_ROW_OP_COUNT,
};

/// Quantization modes, in the order of mlx::core::QuantizationMode.
enum {
  /// Every mode, in a routing table.
  MLX_ROW_MODE_ANY = -1,
  MLX_ROW_MODE_AFFINE = 0,
  MLX_ROW_MODE_MXFP4 = 1,
  MLX_ROW_MODE_MXFP8 = 2,
  MLX_ROW_MODE_NVFP4 = 3,
  MLX_ROW_MODE_COUNT,
};

/// The type of the rows and of the result.
enum {
  MLX_ROW_DTYPE_FLOAT32 = 0,
  MLX_ROW_DTYPE_FLOAT16 = 1,
  MLX_ROW_DTYPE_BFLOAT16 = 2,
};

/// What computes a product.
enum {
  /// Nothing: there is nothing to compute.
  MLX_ROW_PATH_NONE = 0,
  /// qmv_quad: row by row, for K of 64 and 128.
  MLX_ROW_PATH_QUAD,
  /// qmv: row by row.
  MLX_ROW_PATH_QMV,
  /// qmv_wide: tiles of rows, in an order of their own.
  MLX_ROW_PATH_WIDE,
  /// qmv_streamed: tiles of rows, in the order of qmv.
  MLX_ROW_PATH_STREAMED,
  /// One of MLX's other kernels that go row by row: gathers, and weights that
  /// are not transposed.
  MLX_ROW_PATH_ROWS,
  /// A matrix kernel.
  MLX_ROW_PATH_MATRIX,
  /// A matrix kernel over sorted picks of a gather that share weights.
  MLX_ROW_PATH_SORTED,
  /// qmv_streamed in the other of its two arrangements, for routes: which of
  /// them is the faster depends on the GPU.
  MLX_ROW_PATH_STREAMED_ALT,
  MLX_ROW_PATH_COUNT,
};

/// One operation on rows. A product multiplies x of (batch, m, k) by weights of
/// n rows of k values (of k rows of n values without `transpose`). Attention
/// takes (batch, heads, m, k) queries over `keys` keys and values of n numbers;
/// gated delta m tokens of heads with k and values with n numbers.
typedef struct mlx_row_problem {
  int32_t op; // MLX_ROW_OP_*
  int32_t mode; // MLX_ROW_MODE_*; quantized products only
  int32_t dtype; // MLX_ROW_DTYPE_*
  int32_t bits; // bits a weight; quantized products only
  int32_t group_size; // weights that share a scale; quantized products only
  int32_t transpose; // 1: the weights are (n, k)
  int32_t m; // rows of x that meet the same weights; positions
  int32_t n; // outputs a row
  int32_t k; // values a row
  int32_t batch; // products, each with m rows; sequences
  int32_t experts; // matrices among which a gather picks; else 1
  int32_t right_sorted; // gather: the right-hand indices are sorted
  int32_t global_scale; // 1: nvfp4 with a per-tensor scale
  int32_t heads; // attention, gated delta: heads of the queries, of the values;
                 // dense products: those that MLX folds into rows, else 0
  int32_t kv_heads; // attention, gated delta: heads of the keys
  int32_t keys; // attention: keys that the last position sees
  int32_t stream; // Stream::index when it is decided, else -1
} mlx_row_problem;

/// MLX's own answers about a product on a device.
typedef struct mlx_row_upstream {
  int32_t batch_limit; // the M from which it takes matrix kernels
  int32_t matrix_kernels; // 1: it has matrix kernels for this product
  int32_t wide; // 1: it prefers qmv_wide to qmv for several rows
  int32_t fast; // 1: K is one that the fast kernels take
} mlx_row_upstream;

/// A measured preference: products of this format and within all the ranges
/// (both ends included) take `path`, provided the policy in force permits it.
typedef struct mlx_row_route {
  int32_t mode; // MLX_ROW_MODE_*
  int32_t bits; // 0: any
  int32_t group_size; // 0: any
  int32_t n_min, n_max;
  int32_t k_min, k_max;
  int32_t m_min, m_max;
  int32_t path; // MLX_ROW_PATH_QMV, _WIDE, _STREAMED or _STREAMED_ALT
} mlx_row_route;

/// What was decided about a product.
typedef struct mlx_row_plan {
  mlx_row_policy policy; // the policy in force
  int32_t path; // MLX_ROW_PATH_*
  int32_t fast; // 1: the path's kernel for K that needs no tail
  int32_t tile; // the most rows that one threadgroup serves; 0: MLX's matrix
                // kernels say
  int32_t outputs; // streamed paths: outputs a row that one simdgroup computes
  int32_t sharing; // streamed paths: simdgroups that share x in threadgroup
                   // memory; 0: two, each with its own
  int32_t identical; // 1: every row has the bits that it has alone, under
                     // `wide` those that it has alone under `wide`
} mlx_row_plan;

/// How the rows of a dense product are computed.
enum {
  /// All at once, as MLX chooses.
  MLX_ROW_DENSE_UPSTREAM = 0,
  /// One after the other, each as MLX computes it alone.
  MLX_ROW_DENSE_BY_ROW,
  /// gemv_rows or gemv_t_rows: tiles of rows, in the order of gemv and gemv_t.
  MLX_ROW_DENSE_STREAMED,
  MLX_ROW_DENSE_COUNT,
};

/// What one row of a dense product takes alone.
enum {
  /// gemv: the weights are (n, k), or n is 1.
  MLX_ROW_ALONE_GEMV = 0,
  /// gemv_t: the weights are (k, n).
  MLX_ROW_ALONE_GEMV_T,
  /// dot_product: n is 1.
  MLX_ROW_ALONE_DOT,
  /// Heads that MLX folds into rows: a kernel for several rows.
  MLX_ROW_ALONE_FOLD,
  MLX_ROW_ALONE_COUNT,
};

/// What was decided about a dense product, and the tile of gemv or gemv_t for
/// one row as MLX names it (zero for other kernels).
typedef struct mlx_row_dense_plan {
  mlx_row_policy policy; // the policy in force
  int32_t path; // MLX_ROW_DENSE_*
  int32_t alone; // MLX_ROW_ALONE_*
  int32_t bm, bn, sm, sn, tm, tn;
  int32_t tile; // rows that one threadgroup of the streamed kernel serves
  int32_t identical; // 1: every row has the bits that it has alone
} mlx_row_dense_plan;

/// How MLX computes one row of attention alone.
enum {
  /// Two products and a softmax.
  MLX_ROW_ATTENTION_UNFUSED = 0,
  /// sdpa_vector.
  MLX_ROW_ATTENTION_ONE_PASS,
  /// sdpa_vector_2pass_1: a block takes every key that is its own modulo the
  /// number of blocks.
  MLX_ROW_ATTENTION_TWO_PASS,
  /// sdpa_vector_2pass_1_gqa, for large groups of heads: a block takes adjacent
  /// keys, and the query heads share what is loaded.
  MLX_ROW_ATTENTION_TWO_PASS_SHARED,
  MLX_ROW_ATTENTION_COUNT,
};

/// What a call of attention and its device add to the problem.
typedef struct mlx_row_attention {
  int32_t causal; // 1: each position sees the keys up to its own
  int32_t mask; // 1: there is an array mask
  int32_t sinks; // 1: there are sinks
  int32_t size_class; // the last letter of the architecture: 'p', 'g', 's', 'd'
  int32_t threads; // the most threads of a threadgroup of the two-pass kernel
  int32_t blocks; // what MLX_SDPA_BLOCKS asks for, 0 if it is not set
} mlx_row_attention;

/// What one row of attention takes alone, and its group: neighbouring rows that
/// take the same and share a dispatch.
typedef struct mlx_row_attention_row {
  int32_t keys; // keys that it sees
  int32_t path; // MLX_ROW_ATTENTION_*
  int32_t blocks; // of two passes, else 0
  int32_t end; // the row after the last of its group
} mlx_row_attention_row;

/// Decides the policy of one operation, or declines. Any other answer, or an
/// exception, is an error of the call that asked: of the evaluation, or, for
/// attention, of building the graph. Called on the thread that evaluates or
/// builds. It must not register a hook or evaluate: both are errors.
typedef mlx_row_policy (*mlx_row_hook)(mlx_row_problem problem, void* context);

/// What is wrong with the calling thread's last failed call.
MLX_ROW_API const char* mlx_row_last_error(void);

/// Reads a policy: default, exact, narrow or wide, with ":R" for a block of R
/// rows or ":all" for one without limit. Fails on any other text.
MLX_ROW_API int mlx_row_policy_from_text(
    const char* text,
    mlx_row_policy* policy);

/// Writes a policy as it is read, or fails if it is none.
MLX_ROW_API int mlx_row_policy_text(
    mlx_row_policy policy,
    char text[MLX_ROW_TEXT_SIZE]);

/// The name of a kind, or NULL if there is none of that value.
MLX_ROW_API const char* mlx_row_policy_name(int32_t kind);

/// Stores the kind that a policy comes to for a problem: its own if the rows
/// are a block, else MLX_ROW_POLICY_DEFAULT.
MLX_ROW_API int mlx_row_kind_of(
    const mlx_row_problem* problem,
    mlx_row_policy policy,
    int32_t* kind);

/// The name of a path, or NULL.
MLX_ROW_API const char* mlx_row_path_name(int32_t path);

/// What a quantized product takes under a policy, as a pure function of MLX's
/// answers.
/// `routes` may be NULL with a count of 0.
MLX_ROW_API int mlx_row_decide(
    const mlx_row_problem* problem,
    const mlx_row_upstream* upstream,
    mlx_row_policy policy,
    const mlx_row_route* routes,
    size_t route_count,
    mlx_row_plan* plan);

/// What a dense product (MATMUL or ADDMM) takes under a policy, as a pure
/// function.
MLX_ROW_API int mlx_row_decide_dense(
    const mlx_row_problem* problem,
    mlx_row_policy policy,
    mlx_row_dense_plan* plan);

/// The process's policy, from MLX_ROW_POLICY. Fails if that is none.
MLX_ROW_API int mlx_row_process_policy(mlx_row_policy* policy);

/// Registers a hook in place of the last one; NULL takes it away. When this
/// returns, no call of the former hook is running or will start. Fails if a
/// hook calls it.
MLX_ROW_API int mlx_row_set_hook(mlx_row_hook hook, void* context);

/// The same for a hook that owns its context: once the hook is replaced or
/// taken away and no call of it runs, `release` is called with the context, on
/// the thread that did so. It is not called if this fails.
MLX_ROW_API int mlx_row_set_owned_hook(
    mlx_row_hook hook,
    void* context,
    void (*release)(void* context));

/// Whether the calling thread is inside of the hook: 1 or 0.
MLX_ROW_API int32_t mlx_row_in_hook(void);

/// Whether this build has kernels for policies other than `default`: 1 or 0.
MLX_ROW_API int32_t mlx_row_has_kernels(void);

/// Gives a stream its policy, for the life of the process. Fails if it has one,
/// if an operation on it was decided already, and, except for `default`, if its
/// device or this build cannot keep one.
MLX_ROW_API int mlx_row_set_stream_policy(int32_t index, mlx_row_policy policy);

/// Makes a GPU stream of the calling thread, gives it a policy and stores its
/// index. Only the calling thread may use it.
MLX_ROW_API int mlx_row_new_stream(mlx_row_policy policy, int32_t* index);

/// The policy that a stream was given, or the kind MLX_ROW_DECLINE.
MLX_ROW_API int mlx_row_stream_policy(int32_t index, mlx_row_policy* policy);

// The rest needs MLX's Metal back-end.

/// What a quantized product would take if it were dispatched on this device, in
/// this process and on the stream that the problem names (-1: none).
MLX_ROW_API int mlx_row_plan_product(
    const mlx_row_problem* problem,
    mlx_row_plan* plan);

/// What each row of a block of attention takes under a kind of policy, and the
/// groups, as a pure function. `unfused` has a value a row: 1 if MLX has no
/// fused kernel for it alone. Writes problem->m entries to `rows`.
MLX_ROW_API int mlx_row_plan_attention(
    const mlx_row_problem* problem,
    const mlx_row_attention* call,
    int32_t kind,
    const uint8_t* unfused,
    mlx_row_attention_row* rows);

/// The name of a way to compute a row of attention, or NULL.
MLX_ROW_API const char* mlx_row_attention_name(int32_t path);

/// Replaces the routing table, which is empty at first. The values are copied.
MLX_ROW_API int mlx_row_set_routes(
    const mlx_row_route* routes,
    size_t route_count);

/// Stores 1 if the device has matrix units that MLX uses, else 0.
MLX_ROW_API int mlx_row_matrix_units(int32_t* has);

/// Copies how many products took each path, up to `capacity` counters, and
/// returns how many there are: two a path, the second for its fast kernel.
MLX_ROW_API size_t mlx_row_counts(uint64_t* counts, size_t capacity);

/// Sets the counters to zero.
MLX_ROW_API void mlx_row_reset_counts(void);

/// Begins to record the names of the kernels that the calling thread asks its
/// device for, whatever they compute. Forgets what was recorded before.
MLX_ROW_API void mlx_row_record_kernels(void);

/// Ends the recording and returns the names in their order, each followed by a
/// newline. Valid until the thread's next recording.
MLX_ROW_API const char* mlx_row_recorded_kernels(void);

#ifdef __cplusplus
} // extern "C"

#include <exception>
#include <string>
#include <utility>

namespace mlx::core {

/// Sets what `mlx_row_last_error` returns on this thread, and returns -1.
int row_fail(std::string message);

/// Runs the body of a C function; an exception becomes its error.
template <typename F>
int row_guarded(F body) {
  try {
    body();
    return 0;
  } catch (const std::exception& e) {
    return row_fail(e.what());
  } catch (...) {
    return row_fail("an exception of a foreign type");
  }
}

/// Throws std::invalid_argument unless `policy` is one; `what` begins the
/// message.
void check_row_policy(const std::string& what, mlx_row_policy policy);

/// The policy in force for a problem: that of its stream, of the hook or of the
/// process. Throws if a hook or MLX_ROW_POLICY gives none that is valid.
mlx_row_policy row_policy_of(const mlx_row_problem& problem);

/// The kind that a policy comes to for a problem: its own if the rows are a
/// block, else MLX_ROW_POLICY_DEFAULT.
int row_kind(mlx_row_policy policy, const mlx_row_problem& problem);

/// The policy that the stream of that index was given, or the kind
/// MLX_ROW_DECLINE.
mlx_row_policy row_stream_policy(int index);

/// Gives the stream of that index its policy. Throws if it is too late.
void set_row_stream_policy(int index, mlx_row_policy policy);

} // namespace mlx::core
#endif
