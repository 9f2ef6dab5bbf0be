// Computes rows one after the other, each as MLX computes it alone.

#pragma once

#include <algorithm>
#include <vector>

#include "mlx/backend/cuda/device.h"
#include "mlx/backend/gpu/copy.h"

namespace mlx::core {

/// A view of an array with other shape and strides.
inline array
row_view(const array& x, Shape shape, Strides strides, int64_t offset) {
  size_t size = 1;
  for (auto n : shape) {
    size *= n;
  }
  array view(std::move(shape), x.dtype(), nullptr, {});
  // It is always safe to call an array not contiguous.
  view.copy_shared_buffer(
      x, std::move(strides), {false, false, false}, size, offset);
  return view;
}

/// Whether an array is one row, broadcast.
inline bool is_same_row(const array& x) {
  const auto last = x.strides().end() - 1;
  return *last == 1 && std::all_of(x.strides().begin(), last, [](auto stride) {
    return stride == 0;
  });
}

/// x[..., r : r + 1, :] as a separate array, contiguous and aligned. A row that
/// is the same for all stays a broadcast, since MLX has another path for that.
inline array row_of(const array& x, int r, const Stream& s) {
  auto shape = x.shape();
  const int axis = x.ndim() - 2;
  shape[axis] = 1;
  if (is_same_row(x)) {
    array same(shape, x.dtype(), nullptr, {});
    same.copy_shared_buffer(x, x.strides(), {true, false, false}, x.shape(-1));
    return same;
  }
  const auto view = row_view(x, shape, x.strides(), r * x.strides(axis));
  const auto row = contiguous_copy_gpu(view, s);
  cu::get_command_encoder(s).add_temporary(row);
  return row;
}

/// Computes each row of the second to last dimension with the primitive itself,
/// from that row of the inputs `with_rows` and the whole of the other inputs.
/// `out` must have memory.
template <typename P>
void by_row(
    P& primitive,
    const std::vector<array>& inputs,
    const std::vector<size_t>& with_rows,
    array& out) {
  const auto& s = primitive.stream();
  auto& encoder = cu::get_command_encoder(s);
  auto shape = out.shape();
  const int rows = shape[shape.size() - 2], n = shape.back();
  const int batch = out.size() / rows / n;
  shape[shape.size() - 2] = 1;
  for (int r = 0; r < rows; r++) {
    auto given = inputs;
    for (auto i : with_rows) {
      given[i] = row_of(inputs[i], r, s);
    }
    array row(shape, out.dtype(), nullptr, {});
    primitive.eval_gpu(given, row);
    copy_gpu_inplace(
        row,
        out,
        {batch, n},
        {n, 1},
        {int64_t(rows) * n, 1},
        0,
        int64_t(r) * n,
        CopyType::GeneralGeneral,
        s);
    encoder.add_temporary(row);
  }
}

} // namespace mlx::core
