#include "mlx/backend/cuda/by_row.h"
#include "mlx/backend/cuda/gemms/gemv.h"
#include "mlx/backend/cuda/rows.h"
#include "mlx/row_problem.h"

namespace mlx::core {

namespace {

// Whether all products of a batch share one matrix.
bool shares_matrix(const array& b) {
  for (int i = 0; i + 2 < static_cast<int>(b.ndim()); i++) {
    if (b.shape(i) != 1 && b.strides(i) != 0) {
      return false;
    }
  }
  return true;
}

// (batch, m, n) as (batch * m, n), for arrays in that order.
array folded(const array& x) {
  return row_view(
      x,
      {static_cast<int>(x.size() / x.shape(-1)), x.shape(-1)},
      {x.shape(-1), 1},
      0);
}

array contiguous(const array& x, const Stream& s) {
  if (x.flags().row_contiguous) {
    return x;
  }
  auto copy = contiguous_copy_gpu(x, s);
  cu::get_command_encoder(s).add_temporary(copy);
  return copy;
}

template <typename P>
bool rows_of_product(
    P& primitive,
    int op,
    const std::vector<array>& inputs,
    array& out) {
  array a = inputs[0], b = inputs[1];
  if (out.size() == 0 || a.size() == 0 || !is_row_dtype(out.dtype())) {
    return false;
  }
  const int n = b.shape(-1), k = a.shape(-1);
  const bool folds = a.ndim() > 2 && shares_matrix(b);
  mlx_row_problem problem{};
  problem.op = op;
  problem.dtype = row_dtype(out.dtype());
  problem.m = folds ? a.size() / k : a.shape(-2);
  problem.n = n;
  problem.k = k;
  problem.batch = out.size() / problem.m / n;
  problem.experts = 1;
  problem.stream = primitive.stream().index;
  const bool plain = b.strides(-1) == 1;
  problem.transpose = !plain && b.strides(-2) == 1;
  if (problem.m == 1 || !keeps_rows(problem)) {
    return false;
  }

  const auto& s = primitive.stream();
  auto& encoder = cu::get_command_encoder(s);
  out.set_data(cu::malloc_async(out.nbytes(), encoder));
  auto given = inputs;
  array rows = out;
  if (folds) {
    given[0] = folded(contiguous(a, s));
    given[1] = row_view(b, {k, n}, {b.strides(-2), b.strides(-1)}, 0);
    if (given.size() > 2) {
      given[2] = is_same_row(given[2])
          ? row_view(given[2], {problem.m, n}, {0, 1}, 0)
          : folded(contiguous(given[2], s));
    }
    rows = folded(out);
  }
  // One row uses gemv if the matrix is transposed. Its kernel for a batch does
  // the same for each of several rows.
  const bool takes_gemv = op == MLX_ROW_OP_MATMUL && rows.ndim() == 2 &&
      problem.transpose && b.strides(-1) == k;
  if (takes_gemv) {
    a = contiguous(given[0], s);
    if (reinterpret_cast<uintptr_t>(gpu_ptr<void>(a)) % 16 != 0) {
      a = contiguous_copy_gpu(a, s);
      encoder.add_temporary(a);
    }
    cu::gemv(
        a, given[1], out, 1, n, k, problem.m, {problem.m}, {k}, {0}, encoder);
    return true;
  }
  if (given.size() > 2) {
    by_row(primitive, given, {0, 2}, rows);
  } else {
    by_row(primitive, given, {0}, rows);
  }
  return true;
}

} // namespace

bool dense_rows(
    Matmul& primitive,
    const std::vector<array>& inputs,
    array& out) {
  return rows_of_product(primitive, MLX_ROW_OP_MATMUL, inputs, out);
}

bool dense_rows(
    AddMM& primitive,
    const std::vector<array>& inputs,
    array& out) {
  return rows_of_product(primitive, MLX_ROW_OP_ADDMM, inputs, out);
}

bool gather_rows(
    GatherMM& primitive,
    const std::vector<array>& inputs,
    array& out) {
  const int m = inputs[0].shape(-2);
  const bool sorted = primitive.state().second;
  // A pick of one row is computed as if it were alone unless picks are sorted.
  if ((m == 1 && !sorted) || out.size() == 0 || inputs[0].size() == 0 ||
      !is_row_dtype(out.dtype())) {
    return false;
  }
  if (!keeps_rows(gather_mm_problem(primitive, inputs, out))) {
    return false;
  }
  GatherMM unsorted(primitive.stream());
  if (m == 1) {
    unsorted.eval_gpu(inputs, out);
  } else {
    auto& encoder = cu::get_command_encoder(primitive.stream());
    out.set_data(cu::malloc_async(out.nbytes(), encoder));
    by_row(unsorted, inputs, {0}, out);
  }
  return true;
}

} // namespace mlx::core
