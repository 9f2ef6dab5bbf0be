// A quantized product as a policy sees it.

#pragma once

#include <tuple>
#include <type_traits>
#include <vector>

#include "mlx/primitives.h"
#include "mlx/row_problem.h"

namespace mlx::core {

/// The product of M rows of x that a primitive computes.
struct QmvProblem : mlx_row_problem {
  template <typename P>
  QmvProblem(
      P& primitive,
      const std::vector<array>& inputs,
      const array& x,
      const array& out,
      int M);
};

template <typename P>
QmvProblem::QmvProblem(
    P& primitive,
    const std::vector<array>& inputs,
    const array& x,
    const array& out,
    int M)
    : mlx_row_problem{} {
  constexpr bool gathers =
      std::is_same_v<P, GatherQMM> || std::is_same_v<P, GatherQQMM>;
  constexpr bool quantizes_x =
      std::is_same_v<P, QQMatmul> || std::is_same_v<P, GatherQQMM>;
  const auto state = primitive.state();
  const array& w = inputs[1];
  op = quantizes_x
      ? (gathers ? MLX_ROW_OP_GATHER_QQMM : MLX_ROW_OP_QQ_MATMUL)
      : (gathers ? MLX_ROW_OP_GATHER_QMM : MLX_ROW_OP_QUANTIZED_MATMUL);
  group_size = std::get<0>(state);
  bits = std::get<1>(state);
  mode = static_cast<int32_t>(std::get<2>(state));
  dtype = row_dtype(x.dtype());
  transpose = 1;
  if constexpr (!quantizes_x) {
    transpose = std::get<3>(state);
  }
  experts = 1;
  if constexpr (gathers) {
    experts = w.size() / w.shape(-1) / w.shape(-2);
    right_sorted = std::get<std::tuple_size_v<decltype(state)> - 1>(state);
  }
  // x, w, its scales if it is quantized, two indices for a gather; further
  // inputs are global scales.
  const size_t unscaled =
      2 + (!quantizes_x || w.dtype() == uint32) + (gathers ? 2 : 0);
  global_scale = mode == MLX_ROW_MODE_NVFP4 && inputs.size() > unscaled;
  m = M;
  n = out.shape(-1);
  k = x.shape(-1);
  batch = out.size() == 0 ? 0 : out.size() / M / n;
  stream = primitive.stream().index;
}

} // namespace mlx::core
