// Policies for quantized products with several rows: who asks for one, and for
// which work it holds.
//
// A product's policy is looked up when it is dispatched, in this order: the
// policy of its primitive's stream, if the stream was made with one; what the
// registered hook answers, if there is one and it does not decline; the
// process's default, MLX_QMV_POLICY.

#pragma once

#include "mlx/backend/metal/qmv_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What a hook answers when it has no opinion.
#define MLX_QMV_DECLINE (-1)

/// Decides the policy of one product: a MLX_QMV_POLICY_* or MLX_QMV_DECLINE.
/// Any other answer, or an exception, is an error of that evaluation. Called on
/// the thread that evaluates; must not register a hook.
typedef int32_t (*mlx_qmv_hook)(mlx_qmv_problem problem, void* context);

/// How often a kernel was fetched for a dispatch.
typedef struct mlx_qmv_stat {
  const char* kernel; // its function, as in qmv_fast
  uint64_t dispatches;
} mlx_qmv_stat;

/// Makes a GPU stream of the calling thread whose policy is fixed for the life
/// of the process, and stores its index. Only the calling thread may use it.
MLX_QMV_API int mlx_qmv_new_stream(int32_t policy, int32_t* index);

/// The policy with which a stream was made, or MLX_QMV_DECLINE.
MLX_QMV_API int mlx_qmv_stream_policy(int32_t index, int32_t* policy);

/// The process's default, from MLX_QMV_POLICY. Fails if that names none.
MLX_QMV_API int mlx_qmv_process_policy(int32_t* policy);

/// Registers a hook in place of the last one; NULL takes it away. When this
/// returns, no call of the former hook is running or will start.
MLX_QMV_API void mlx_qmv_set_hook(mlx_qmv_hook hook, void* context);

/// Replaces the routing table, which is empty at first. The values are copied.
MLX_QMV_API int mlx_qmv_set_routes(
    const mlx_qmv_route* routes,
    size_t route_count);

/// The plan that a product would get from a dispatch on this device, in this
/// process and on the stream that the problem names (-1: none).
MLX_QMV_API int mlx_qmv_plan_here(
    const mlx_qmv_problem* problem,
    mlx_qmv_plan* plan);

/// Copies up to `capacity` counters and returns how many there are.
MLX_QMV_API size_t mlx_qmv_stats(mlx_qmv_stat* stats, size_t capacity);

/// Sets the counters to zero.
MLX_QMV_API void mlx_qmv_reset_stats(void);

/// The name of the quantized kernel that the calling thread dispatched last,
/// or "". Valid until its next one.
MLX_QMV_API const char* mlx_qmv_last_kernel(void);

#ifdef __cplusplus
} // extern "C"

#include "mlx/primitives.h"

namespace mlx::core {

/// A quantized product on its way to a kernel, with the policy that it got.
struct QmvCall {
  mlx_qmv_problem problem;
  int policy;

  /// The kernel family below the batch limit (MLX_QMV_PATH_*).
  int path() const;

  /// Whether every row must have its bits at any M and in any batch.
  bool exact() const {
    return policy == MLX_QMV_POLICY_EXACT;
  }
};

/// Finds the policy of a primitive's product of M rows of x, and raises
/// `batch_limit`, which comes as MLX's, where no matrix kernel may be taken.
/// Throws if a hook or MLX_QMV_POLICY gives no valid policy.
template <typename Primitive>
QmvCall qmv_call(
    Primitive& primitive,
    const std::vector<array>& inputs,
    const array& x,
    const array& out,
    int M,
    int& batch_limit);

/// Counts a quantized kernel that is about to be dispatched, by its function
/// and full name.
void qmv_count(const std::string& function, const std::string& name);

/// Makes a GPU stream of the calling thread with a policy.
Stream new_policy_stream(int policy);

/// An index in a ThreadLocalStream is not one of a Stream: sliced, it would
/// name another stream. Resolve it with stream_from_thread_local_stream.
int qmv_stream_policy(ThreadLocalStream) = delete;

/// The policy with which a stream was made, or MLX_QMV_DECLINE.
int qmv_stream_policy(Stream s);

} // namespace mlx::core

#endif // __cplusplus
