// Attention whose rows keep their bits: each query position of a block is
// computed as if it were alone, over its own keys.

#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "mlx/array.h"
#include "mlx/row_policy.h"
#include "mlx/stream.h"

namespace mlx::core::fast {

mlx_row_problem attention_problem(const std::vector<array>& inputs, Stream s);

/// MLX has its own treatment of more positions than keys under a causal mask.
bool has_own_keys(const mlx_row_problem& p, bool causal);

/// The policy for attention on these inputs, if it needs AttentionRows. Throws
/// if the policy in force is invalid.
std::optional<mlx_row_policy>
attention_policy(const std::vector<array>& inputs, bool do_causal, Stream s);

array make_attention_rows(
    std::vector<array> inputs,
    std::function<std::vector<array>(std::vector<array>)> fallback,
    float scale,
    bool do_causal,
    bool has_sinks,
    bool force_fused,
    mlx_row_policy policy,
    Stream s);

/// Attention by AttentionRows, or nothing if MLX's own is to be used: without a
/// policy, for one position, for a prompt, in training and export. A build
/// without kernels for it never makes one.
template <typename Fallback>
std::optional<array> attention_rows(
    const std::vector<array>& inputs,
    const Fallback& fallback,
    float scale,
    bool do_causal,
    bool has_sinks,
    bool force_fused,
    Stream s) {
#ifdef MLX_ATTENTION_ROWS // set by rows.cmake of a back-end
  if (auto policy = attention_policy(inputs, do_causal, s)) {
    return make_attention_rows(
        inputs, fallback, scale, do_causal, has_sinks, force_fused, *policy, s);
  }
#endif
  return std::nullopt;
}

/// The number of rows with which MLX chooses the number of blocks of its
/// two-pass kernel: one, while rows that keep their bits are computed on this
/// thread.
int rows_that_choose(int rows);

} // namespace mlx::core::fast
