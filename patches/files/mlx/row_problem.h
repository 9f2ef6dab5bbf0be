// Describes operations on MLX's arrays for policies.

#pragma once

#include <vector>

#include "mlx/primitives.h"
#include "mlx/row_policy.h"

namespace mlx::core {

/// Whether policies cover rows of this type.
inline bool is_row_dtype(Dtype type) {
  return type == float32 || type == float16 || type == bfloat16;
}

/// The MLX_ROW_DTYPE_* of a covered type; for others, that of float32.
inline int row_dtype(Dtype type) {
  return type == float16 ? MLX_ROW_DTYPE_FLOAT16
      : type == bfloat16 ? MLX_ROW_DTYPE_BFLOAT16
                         : MLX_ROW_DTYPE_FLOAT32;
}

/// Whether the policy of this problem's stream keeps the bits of its rows.
inline bool keeps_rows(const mlx_row_problem& problem) {
  return row_kind(row_policy_of(problem), problem) != MLX_ROW_POLICY_DEFAULT;
}

/// The products of all picks of a gather. `out` has at least one entry.
inline mlx_row_problem gather_mm_problem(
    GatherMM& primitive,
    const std::vector<array>& inputs,
    const array& out) {
  const array& a = inputs[0];
  const array& b = inputs[1];
  mlx_row_problem problem{};
  problem.op = MLX_ROW_OP_GATHER_MM;
  problem.dtype = row_dtype(out.dtype());
  problem.transpose = b.strides(-1) != 1;
  problem.m = a.shape(-2);
  problem.n = b.shape(-1);
  problem.k = a.shape(-1);
  problem.batch = out.size() / problem.m / problem.n;
  problem.experts = b.size() / problem.n / problem.k;
  problem.right_sorted = primitive.state().second;
  problem.stream = primitive.stream().index;
  return problem;
}

} // namespace mlx::core
