// Attention under a row policy: calls MLX's own once for each position.

#include "mlx/attention_rows.h"

#include <stdexcept>

#include "mlx/fast.h"
#include "mlx/ops.h"
#include "mlx/transforms_impl.h"

namespace mlx::core::fast {

array make_attention_rows(
    std::vector<array> inputs,
    std::function<std::vector<array>(std::vector<array>)> fallback,
    float scale,
    bool do_causal,
    bool has_sinks,
    bool force_fused,
    mlx_row_policy policy,
    Stream s) {
  // Whether rows are a block depends on shapes, which such a graph lacks.
  if (detail::in_dynamic_tracing()) {
    throw std::invalid_argument(
        "[scaled_dot_product_attention] this graph is compiled without shapes, "
        "and the CUDA back-end needs them to keep the bits of rows: compile it "
        "with shapes, or use the policy default");
  }
  const auto p = attention_problem(inputs, s);
  const bool has_mask = inputs.size() > 3 + has_sinks;
  auto cut = [&](const array& x, int from, int to) {
    auto start = Shape(x.ndim(), 0), stop = x.shape();
    start[2] = from;
    stop[2] = to;
    return slice(x, start, stop, s);
  };
  std::vector<array> rows;
  for (int r = 0; r < p.m; r++) {
    const int keys = do_causal ? p.keys - (p.m - 1 - r) : p.keys;
    std::optional<array> mask, sinks;
    if (has_mask) {
      mask = cut(inputs[3], r, r + 1);
    }
    if (has_sinks) {
      sinks = inputs.back();
    }
    rows.push_back(scaled_dot_product_attention(
        cut(inputs[0], r, r + 1),
        cut(inputs[1], 0, keys),
        cut(inputs[2], 0, keys),
        scale,
        "",
        mask,
        sinks,
        force_fused,
        s));
  }
  return concatenate(std::move(rows), 2, s);
}

} // namespace mlx::core::fast
