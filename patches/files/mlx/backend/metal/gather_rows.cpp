#include "mlx/backend/metal/gather_rows.h"

#include "mlx/backend/gpu/copy.h"
#include "mlx/backend/metal/device.h"
#include "mlx/row_problem.h"

namespace mlx::core {

namespace {

// x[..., r : r + 1, :], contiguous as if it were alone.
array row_of(const array& x, int r, const Stream& s) {
  auto shape = x.shape();
  shape[shape.size() - 2] = 1;
  array row(shape, x.dtype(), nullptr, {});
  row.copy_shared_buffer(
      x,
      x.strides(),
      {false, false, false},
      row.size(),
      r * x.strides()[x.ndim() - 2]);
  array copy = contiguous_copy_gpu(row, s);
  metal::get_command_encoder(s).add_temporary(copy);
  return copy;
}

} // namespace

bool gather_rows(
    GatherMM& primitive,
    const std::vector<array>& inputs,
    array& out) {
  const array& a = inputs[0];
  const int m = a.shape(-2), n = out.shape(-1);
  const bool sorted = primitive.state().second;
  // A pick of one row is computed as if it were alone unless the picks are
  // sorted.
  if ((m == 1 && !sorted) || out.size() == 0 || !is_row_dtype(out.dtype())) {
    return false;
  }
  const auto problem = gather_mm_problem(primitive, inputs, out);
  if (!keeps_rows(problem)) {
    return false;
  }

  const auto& s = primitive.stream();
  GatherMM unsorted(s);
  if (m == 1) {
    unsorted.eval_gpu(inputs, out);
    return true;
  }
  out.set_data(allocator::malloc(out.nbytes()));
  auto row_shape = out.shape();
  row_shape[row_shape.size() - 2] = 1;
  for (int r = 0; r < m; r++) {
    array row(row_shape, out.dtype(), nullptr, {});
    unsorted.eval_gpu({row_of(a, r, s), inputs[1], inputs[2], inputs[3]}, row);
    metal::get_command_encoder(s).add_temporary(row);
    copy_gpu_inplace(
        row,
        out,
        {problem.batch, n},
        {n, 1},
        {int64_t(m) * n, 1},
        0,
        int64_t(r) * n,
        CopyType::GeneralGeneral,
        s);
  }
  return true;
}

} // namespace mlx::core
