#include "mlx/backend/metal/gated_delta_rows.h"

#include "mlx/row_policy.h"

namespace mlx::core::fast {

int gated_delta_rows(Stream s, const std::vector<array>& inputs) {
  const array& q = inputs[0];
  const array& v = inputs[2];
  const int tokens = q.shape(1);
  if (tokens == 1) {
    return tokens;
  }
  mlx_row_problem problem{};
  problem.op = MLX_ROW_OP_GATED_DELTA;
  problem.dtype = q.dtype() == float16 ? MLX_ROW_DTYPE_FLOAT16
      : q.dtype() == bfloat16          ? MLX_ROW_DTYPE_BFLOAT16
                                       : MLX_ROW_DTYPE_FLOAT32;
  problem.m = tokens;
  problem.n = v.shape(3);
  problem.k = q.shape(3);
  problem.batch = q.shape(0);
  problem.experts = 1;
  problem.heads = v.shape(2);
  problem.kv_heads = q.shape(2);
  problem.stream = s.index;
  const int kind = row_kind(row_policy_of(problem), problem);
  return kind == MLX_ROW_POLICY_DEFAULT ? tokens : 1;
}

} // namespace mlx::core::fast
