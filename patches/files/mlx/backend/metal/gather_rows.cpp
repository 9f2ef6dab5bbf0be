#include "mlx/backend/metal/gather_rows.h"

#include "mlx/backend/gpu/copy.h"
#include "mlx/backend/metal/device.h"
#include "mlx/row_policy.h"

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
  const array& b = inputs[1];
  const int m = a.shape(-2), n = b.shape(-1), k = a.shape(-1);
  const bool sorted = primitive.state().second;
  // A pick of one row is computed as if it were alone unless the picks are
  // sorted.
  const bool covered = out.dtype() == float32 || out.dtype() == float16 ||
      out.dtype() == bfloat16;
  if ((m == 1 && !sorted) || out.size() == 0 || !covered) {
    return false;
  }
  mlx_row_problem problem{};
  problem.op = MLX_ROW_OP_GATHER_MM;
  problem.dtype = out.dtype() == float16 ? MLX_ROW_DTYPE_FLOAT16
      : out.dtype() == bfloat16          ? MLX_ROW_DTYPE_BFLOAT16
                                         : MLX_ROW_DTYPE_FLOAT32;
  problem.transpose = b.strides().back() != 1;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.batch = out.size() / m / n;
  problem.experts = b.size() / n / k;
  problem.right_sorted = sorted;
  problem.stream = primitive.stream().index;
  if (row_kind(row_policy_of(problem), problem) == MLX_ROW_POLICY_DEFAULT) {
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
    unsorted.eval_gpu({row_of(a, r, s), b, inputs[2], inputs[3]}, row);
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
