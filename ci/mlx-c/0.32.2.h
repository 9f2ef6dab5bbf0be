// Functions that mlx-c for MLX 0.32.2 calls and that have other arguments in
// MLX 0.32.4. project.cmake includes this before that mlx-c's ops.cpp.
#pragma once

#include <mlx/ops.h>

namespace mlx::core {

// 0.32.4 has a per-tensor scale between mode and sorted_indices.
inline array gather_qmm(
    const array& x,
    const array& w,
    const array& scales,
    const std::optional<array>& biases,
    std::optional<array> lhs_indices,
    std::optional<array> rhs_indices,
    bool transpose,
    std::optional<int> group_size,
    std::optional<int> bits,
    const std::string& mode,
    bool sorted_indices,
    StreamOrDevice s) {
  return gather_qmm(
      x,
      w,
      scales,
      biases,
      std::move(lhs_indices),
      std::move(rhs_indices),
      transpose,
      group_size,
      bits,
      mode,
      std::nullopt,
      sorted_indices,
      s);
}

} // namespace mlx::core
