// Row policies: which rows of an operation keep their bits, and how the
// operation is then computed. The C interface of everything that the overlay
// adds to MLX.
//
// Functions that can fail return 0 on success and -1 on an error;
// `mlx_row_last_error` then returns the reason.

#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MLX_ROW_API __attribute__((visibility("default")))

/// The kinds of policies. A block has up to as many rows as the policy states;
/// more rows are a prompt, which every kind computes as MLX does. A row alone
/// is one position of one sequence with the keys that it sees, under `default`.
enum {
  /// MLX's own choice.
  MLX_ROW_POLICY_DEFAULT = 0,
  /// Each row of a block has the same bits as alone, from kernels that read
  /// weights once for up to MLX_ROW_TILE_ROWS rows.
  MLX_ROW_POLICY_EXACT = 1,
  /// The same bits from MLX's own kernels for one row, row by row.
  MLX_ROW_POLICY_NARROW = 2,
  /// Each row of a block has the same bits for any number of rows, including
  /// one: those of qmv_wide. What qmv_wide cannot compute is computed as under
  /// narrow.
  MLX_ROW_POLICY_WIDE = 3,
  MLX_ROW_POLICY_COUNT,
};

/// A policy: a kind and the most rows of a block, 0 for no limit. A gather
/// counts picks; its block is MLX_ROW_PICKS_PER_ROW times as large.
typedef struct mlx_row_policy {
  int32_t kind; // MLX_ROW_POLICY_*, or MLX_ROW_DECLINE
  int32_t rows;
} mlx_row_policy;

/// The kind that a hook returns to leave the decision to others, and that of a
/// stream without a policy.
#define MLX_ROW_DECLINE (-1)

/// The default for the most rows of a block.
#define MLX_ROW_BLOCK_ROWS 16

/// How many picks of a gather count as one row: a token picks several experts.
#define MLX_ROW_PICKS_PER_ROW 32

/// The most rows for which one pass over the weights is enough under `exact`.
#define MLX_ROW_TILE_ROWS 8

/// The longest text of a policy, including the final zero.
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

/// The kernels that compute a product.
enum {
  /// None: there is nothing to compute.
  MLX_ROW_PATH_NONE = 0,
  /// qmv_quad: row by row, for K of 64 and 128.
  MLX_ROW_PATH_QUAD,
  /// qmv: row by row.
  MLX_ROW_PATH_QMV,
  /// qmv_wide: tiles of rows, with their own order of additions.
  MLX_ROW_PATH_WIDE,
  /// qmv_streamed: tiles of rows, with the additions in the order of qmv.
  MLX_ROW_PATH_STREAMED,
  /// One of MLX's other kernels that compute row by row: gathers, and weights
  /// that are not transposed.
  MLX_ROW_PATH_ROWS,
  /// A matrix kernel.
  MLX_ROW_PATH_MATRIX,
  /// A matrix kernel for the sorted picks of a gather that share weights.
  MLX_ROW_PATH_SORTED,
  /// qmv_streamed in the other of its two arrangements, for routes: which one
  /// is faster depends on the GPU.
  MLX_ROW_PATH_STREAMED_ALT,
  MLX_ROW_PATH_COUNT,
};

/// One operation on rows. A product multiplies x of (batch, m, k) by weights of
/// n rows of k values (k rows of n values without `transpose`). Attention has
/// queries of (batch, heads, m, k), `keys` keys, and values of n numbers; gated
/// delta has m tokens of heads with k and values with n numbers.
typedef struct mlx_row_problem {
  int32_t op; // MLX_ROW_OP_*
  int32_t mode; // MLX_ROW_MODE_*; quantized products only
  int32_t dtype; // MLX_ROW_DTYPE_*
  int32_t bits; // bits per weight; quantized products only
  int32_t group_size; // weights that share a scale; quantized products only
  int32_t transpose; // 1: the weights are (n, k)
  int32_t m; // rows of x that use the same weights; positions
  int32_t n; // outputs per row
  int32_t k; // values per row
  int32_t batch; // products, each with m rows; sequences
  int32_t experts; // matrices from which a gather picks; else 1
  int32_t right_sorted; // gather: the right-hand indices are sorted
  int32_t global_scale; // 1: nvfp4 with a per-tensor scale
  int32_t heads; // attention, gated delta: heads of the queries, of the values;
                 // dense products: those that MLX folds into rows, else 0
  int32_t kv_heads; // attention, gated delta: heads of the keys
  int32_t keys; // attention: keys that the last position sees
  int32_t stream; // Stream::index, if known, else -1
} mlx_row_problem;

/// MLX's own answers about a product on a device.
typedef struct mlx_row_upstream {
  int32_t batch_limit; // the M from which it takes matrix kernels
  int32_t matrix_kernels; // 1: it has matrix kernels for this product
  int32_t wide; // 1: it prefers qmv_wide to qmv for several rows
  int32_t fast; // 1: the fast kernels accept K
} mlx_row_upstream;

/// A measured preference: products of this format and within all the ranges
/// (including both ends) take `path`, if the policy in force permits it.
typedef struct mlx_row_route {
  int32_t mode; // MLX_ROW_MODE_*
  int32_t bits; // 0: any
  int32_t group_size; // 0: any
  int32_t n_min, n_max;
  int32_t k_min, k_max;
  int32_t m_min, m_max;
  int32_t path; // MLX_ROW_PATH_QMV, _WIDE, _STREAMED or _STREAMED_ALT
} mlx_row_route;

/// The decision about a product.
typedef struct mlx_row_plan {
  mlx_row_policy policy; // the policy in force
  int32_t path; // MLX_ROW_PATH_*
  int32_t fast; // 1: the path's kernel for a K without a tail
  int32_t tile; // the most rows that one threadgroup serves; 0: MLX's matrix
                // kernels say
  int32_t outputs; // streamed paths: outputs per row of one simdgroup
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

/// How one row of a dense product is computed alone.
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

/// The decision about a dense product, and the tile of gemv or gemv_t for one
/// row with MLX's names (zero for other kernels).
typedef struct mlx_row_dense_plan {
  mlx_row_policy policy; // the policy in force
  int32_t path; // MLX_ROW_DENSE_*
  int32_t alone; // MLX_ROW_ALONE_*
  int32_t bm, bn, sm, sn, tm, tn;
  int32_t tile; // rows per threadgroup of the streamed kernel
  int32_t identical; // 1: every row has the same bits as alone
} mlx_row_dense_plan;

/// How MLX computes one row of attention alone.
enum {
  /// Two products and a softmax.
  MLX_ROW_ATTENTION_UNFUSED = 0,
  /// sdpa_vector.
  MLX_ROW_ATTENTION_ONE_PASS,
  /// sdpa_vector_2pass_1: a block takes every key whose index modulo the number
  /// of blocks is the block's own.
  MLX_ROW_ATTENTION_TWO_PASS,
  /// sdpa_vector_2pass_1_gqa, for large groups of heads: a block takes adjacent
  /// keys, and the query heads share the loaded data.
  MLX_ROW_ATTENTION_TWO_PASS_SHARED,
  MLX_ROW_ATTENTION_COUNT,
};

/// The parameters of a call of attention and its device, besides the problem.
typedef struct mlx_row_attention {
  int32_t causal; // 1: each position sees the keys up to its own
  int32_t mask; // 1: there is an array mask
  int32_t sinks; // 1: there are sinks
  int32_t size_class; // the last letter of the architecture: 'p', 'g', 's', 'd'
  int32_t threads; // the most threads of a threadgroup of the two-pass kernel
  int32_t blocks; // the value of MLX_SDPA_BLOCKS, 0 if not set
} mlx_row_attention;

/// How one row of attention is computed alone, and its group: adjacent rows
/// that are computed alike and share a dispatch.
typedef struct mlx_row_attention_row {
  int32_t keys; // keys that it sees
  int32_t path; // MLX_ROW_ATTENTION_*
  int32_t blocks; // of two passes, else 0
  int32_t end; // the row after the last of its group
} mlx_row_attention_row;

/// Decides the policy of one operation, or declines. Any other return value, or
/// an exception, is an error of the caller: of the evaluation or, for
/// attention, of building the graph. Called on the thread that evaluates or
/// builds. It must not register a hook or evaluate: both are errors.
typedef mlx_row_policy (*mlx_row_hook)(mlx_row_problem problem, void* context);

/// The reason of the calling thread's last failed call.
MLX_ROW_API const char* mlx_row_last_error(void);

/// Parses a policy: default, exact, narrow or wide, with ":R" for a block of R
/// rows or ":all" for one without limit. Fails on any other text.
MLX_ROW_API int mlx_row_policy_from_text(
    const char* text,
    mlx_row_policy* policy);

/// Writes a policy in the form that is parsed; fails if it is invalid.
MLX_ROW_API int mlx_row_policy_text(
    mlx_row_policy policy,
    char text[MLX_ROW_TEXT_SIZE]);

/// The name of a kind, or NULL if the value is not a kind.
MLX_ROW_API const char* mlx_row_policy_name(int32_t kind);

/// Stores the kind that applies to a problem under a policy: the policy's own
/// if the rows are a block, else MLX_ROW_POLICY_DEFAULT.
MLX_ROW_API int mlx_row_kind_of(
    const mlx_row_problem* problem,
    mlx_row_policy policy,
    int32_t* kind);

/// The name of a path, or NULL.
MLX_ROW_API const char* mlx_row_path_name(int32_t path);

/// The decision for a quantized product under a policy, as a pure function of
/// MLX's answers. `routes` may be NULL with a count of 0.
MLX_ROW_API int mlx_row_decide(
    const mlx_row_problem* problem,
    const mlx_row_upstream* upstream,
    mlx_row_policy policy,
    const mlx_row_route* routes,
    size_t route_count,
    mlx_row_plan* plan);

/// The decision for a dense product (MATMUL or ADDMM) under a policy, as a pure
/// function.
MLX_ROW_API int mlx_row_decide_dense(
    const mlx_row_problem* problem,
    mlx_row_policy policy,
    mlx_row_dense_plan* plan);

/// The process's policy, from MLX_ROW_POLICY. Fails if that is invalid.
MLX_ROW_API int mlx_row_process_policy(mlx_row_policy* policy);

/// Registers a hook that replaces the last one; NULL removes it. When this
/// returns, no call of the former hook is running or will start. Fails if a
/// hook calls it.
MLX_ROW_API int mlx_row_set_hook(mlx_row_hook hook, void* context);

/// The same for a hook that owns its context: when the hook has been replaced
/// or removed and none of its calls is running, `release` is called with the
/// context, on the thread that did so. It is not called if this fails.
MLX_ROW_API int mlx_row_set_owned_hook(
    mlx_row_hook hook,
    void* context,
    void (*release)(void* context));

/// Whether the calling thread is inside the hook: 1 or 0.
MLX_ROW_API int32_t mlx_row_in_hook(void);

/// Whether this build has kernels for policies other than `default`: 1 or 0.
MLX_ROW_API int32_t mlx_row_has_kernels(void);

/// Gives a stream its policy, for the life of the process. Fails if it has one,
/// if an operation on it was already decided, or (except for `default`) if its
/// device or this build cannot keep a policy.
MLX_ROW_API int mlx_row_set_stream_policy(int32_t index, mlx_row_policy policy);

/// Makes a GPU stream of the calling thread, gives it a policy and stores its
/// index. Only the calling thread may use it.
MLX_ROW_API int mlx_row_new_stream(mlx_row_policy policy, int32_t* index);

/// The policy of a stream, or the kind MLX_ROW_DECLINE if it has none.
MLX_ROW_API int mlx_row_stream_policy(int32_t index, mlx_row_policy* policy);

// The functions below need MLX's Metal back-end.

/// How a quantized product would be computed on this device, in this process
/// and on the problem's stream (-1: none).
MLX_ROW_API int mlx_row_plan_product(
    const mlx_row_problem* problem,
    mlx_row_plan* plan);

/// How each row of a block of attention is computed under a kind of policy, and
/// the groups, as a pure function. `unfused` has a value per row: 1 if MLX has
/// no fused kernel for it alone. Writes problem->m entries to `rows`.
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
/// returns the number of counters: two per path, the second for its fast
/// kernel.
MLX_ROW_API size_t mlx_row_counts(uint64_t* counts, size_t capacity);

/// Sets the counters to zero.
MLX_ROW_API void mlx_row_reset_counts(void);

/// Starts to record the names of the kernels that the calling thread requests
/// from its device, whatever they compute. Drops earlier records.
MLX_ROW_API void mlx_row_record_kernels(void);

/// Ends the recording and returns the names in order, each followed by a
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

/// Runs the body of a C function; turns an exception into its error.
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

/// Throws std::invalid_argument if `policy` is invalid; the message starts with
/// `what`.
void check_row_policy(const std::string& what, mlx_row_policy policy);

/// The policy in force for a problem: that of its stream, of the hook or of the
/// process. Throws if a hook or MLX_ROW_POLICY gives an invalid one.
mlx_row_policy row_policy_of(const mlx_row_problem& problem);

/// The kind that applies to a problem under a policy: the policy's own if the
/// rows are a block, else MLX_ROW_POLICY_DEFAULT.
int row_kind(mlx_row_policy policy, const mlx_row_problem& problem);

/// The policy of the stream with this index, or the kind MLX_ROW_DECLINE.
mlx_row_policy row_stream_policy(int index);

/// Gives the stream with this index its policy. Throws if it is too late.
void set_row_stream_policy(int index, mlx_row_policy policy);

} // namespace mlx::core
#endif
