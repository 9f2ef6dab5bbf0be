#include "mlx/backend/metal/gated_delta_rows.h"

#include "mlx/row_problem.h"

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
  problem.dtype = row_dtype(q.dtype());
  problem.m = tokens;
  problem.n = v.shape(3);
  problem.k = q.shape(3);
  problem.batch = q.shape(0);
  problem.experts = 1;
  problem.heads = v.shape(2);
  problem.kv_heads = q.shape(2);
  problem.stream = s.index;
  return keeps_rows(problem) ? 1 : tokens;
}

} // namespace mlx::core::fast
