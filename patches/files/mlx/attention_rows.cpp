#include "mlx/attention_rows.h"

#include "mlx/row_problem.h"
#include "mlx/transforms_impl.h"

namespace mlx::core::fast {

mlx_row_problem attention_problem(const std::vector<array>& inputs, Stream s) {
  const auto& q = inputs[0];
  const auto& k = inputs[1];
  mlx_row_problem p{};
  p.op = MLX_ROW_OP_ATTENTION;
  p.dtype = row_dtype(q.dtype());
  p.m = q.shape(2);
  p.n = inputs[2].shape(3);
  p.k = q.shape(3);
  p.batch = q.shape(0);
  p.experts = 1;
  p.heads = q.shape(1);
  p.kv_heads = k.shape(1);
  p.keys = k.shape(2);
  p.stream = s.index;
  return p;
}

bool has_own_keys(const mlx_row_problem& p, bool causal) {
  return p.m > 0 && p.keys >= (causal ? p.m : 1);
}

std::optional<mlx_row_policy>
attention_policy(const std::vector<array>& inputs, bool do_causal, Stream s) {
  if (s.device != Device::gpu || detail::in_grad_tracing() ||
      detail::in_export_tracing()) {
    return std::nullopt;
  }
  if (!is_row_dtype(inputs[0].dtype())) {
    return std::nullopt;
  }
  // Without shapes, one row or a prompt may become a block.
  const bool any = detail::in_dynamic_tracing();
  const auto p = attention_problem(inputs, s);
  if (!any && (p.m <= 1 || !has_own_keys(p, do_causal))) {
    return std::nullopt;
  }
  const auto policy = row_policy_of(p);
  if (policy.kind == MLX_ROW_POLICY_DEFAULT ||
      (!any && row_kind(policy, p) == MLX_ROW_POLICY_DEFAULT)) {
    return std::nullopt;
  }
  return policy;
}

} // namespace mlx::core::fast
