// How quantized.cpp asks what a product takes.

#pragma once

#include "mlx/backend/common/qmv_problem.h"
#include "mlx/backend/metal/device.h"
#include "mlx/backend/metal/qmv_plan.h"

namespace mlx::core {

/// A quantized product on its way to a kernel, with what was decided.
struct QmvCall {
  mlx_row_problem problem;
  mlx_row_plan plan;

  /// Whether the rows are a block whose rows must keep their bits.
  bool keeps_rows() const {
    return row_kind(plan.policy, problem) != MLX_ROW_POLICY_DEFAULT;
  }

  /// Whether a streamed kernel computes it.
  bool is_streamed() const {
    return plan.path == MLX_ROW_PATH_STREAMED ||
        plan.path == MLX_ROW_PATH_STREAMED_ALT;
  }
};

/// Decides what a product takes. MLX's own answer, the M from which it takes
/// matrix kernels or whether it has any, comes in and goes out as the policy
/// permits. Throws if a hook or MLX_ROW_POLICY gives no valid policy.
QmvCall qmv_call(const QmvProblem& problem, int& batch_limit);
QmvCall qmv_call(const QmvProblem& problem, bool& matrix_kernels);

/// Rules of quantized.cpp, asked instead of repeated. Defined there.
struct QmvRules {
  int (*batch_limit)(int D, int O, metal::Device& d);
  bool (*wide)(const std::string& mode, metal::Device& d);
  int (*fast_k_alignment)(int bits);
};
extern const QmvRules qmv_ask;

} // namespace mlx::core
