// The interface for quantized.cpp: which kernel a product takes.

#pragma once

#include "mlx/backend/common/qmv_problem.h"
#include "mlx/backend/metal/device.h"
#include "mlx/backend/metal/qmv_plan.h"

namespace mlx::core {

/// A quantized product before its kernel runs, with the decision.
struct QmvCall {
  mlx_row_problem problem;
  mlx_row_plan plan;

  /// Whether it is a block whose rows must keep their bits.
  bool keeps_rows() const {
    return row_kind(plan.policy, problem) != MLX_ROW_POLICY_DEFAULT;
  }

  /// Whether a streamed kernel computes it.
  bool is_streamed() const {
    return plan.path == MLX_ROW_PATH_STREAMED ||
        plan.path == MLX_ROW_PATH_STREAMED_ALT;
  }
};

/// Decides which kernel a product takes. MLX's own answer, the M from which it
/// takes matrix kernels or whether it has any, is passed in and changed as the
/// policy permits. Throws if a hook or MLX_ROW_POLICY gives an invalid policy.
QmvCall qmv_call(const QmvProblem& problem, int& batch_limit);
QmvCall qmv_call(const QmvProblem& problem, bool& matrix_kernels);

/// Rules of quantized.cpp, called instead of repeated. Defined there.
struct QmvRules {
  int (*batch_limit)(int D, int O, metal::Device& d);
  bool (*wide)(const std::string& mode, metal::Device& d);
  int (*fast_k_alignment)(int bits);
};
extern const QmvRules qmv_ask;

} // namespace mlx::core
