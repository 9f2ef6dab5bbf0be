#include <stdexcept>
#include <string>

#include "mlx/backend/common/qmv_problem.h"
#include "mlx/backend/cuda/by_row.h"
#include "mlx/backend/cuda/quantized/qmm/qmm.h"
#include "mlx/backend/cuda/quantized/qmm/qmv_streamed.h"
#include "mlx/backend/cuda/rows.h"

namespace mlx::core {

namespace {

// Products with the same weights are rows: (batch, m, k) as (batch * m, k).
int rows_of(const array& x, const array& w) {
  return w.ndim() == 2 ? x.size() / x.shape(-1) : x.shape(-2);
}

// The most rows that MLX computes with qmv without a policy.
constexpr int upstream_qmv_rows = 7;

} // namespace

bool quantized_rows(
    QuantizedMatmul& primitive,
    const std::vector<array>& inputs,
    const array& x,
    array& out,
    bool one_row_takes_qmv) {
  const array& w = inputs[1];
  if (out.size() == 0 || !is_row_dtype(out.dtype())) {
    return false;
  }
  const int m = rows_of(x, w);
  const QmvProblem problem(primitive, inputs, x, out, m);
  const int kind = row_kind(row_policy_of(problem), problem);
  const bool free = kind == MLX_ROW_POLICY_DEFAULT;
  if (free &&
      !(one_row_takes_qmv && problem.m * problem.batch <= upstream_qmv_rows)) {
    return false;
  }
  if (!one_row_takes_qmv) {
    if (m == 1) {
      return false;
    }
    // Rows of a batch with the same weights are rows of one matrix.
    const bool folds = w.ndim() == 2 && out.ndim() > 2;
    auto& encoder = cu::get_command_encoder(primitive.stream());
    auto given = inputs;
    given[0] = folds ? row_view(x, {m, x.shape(-1)}, {x.shape(-1), 1}, 0) : x;
    out.set_data(cu::malloc_async(out.nbytes(), encoder));
    array rows =
        folds ? row_view(out, {m, out.shape(-1)}, {out.shape(-1), 1}, 0) : out;
    by_row(primitive, given, {0}, rows);
    return true;
  }

  auto& encoder = cu::get_command_encoder(primitive.stream());
  const auto& scales = inputs[2];
  std::optional<array> biases;
  if (inputs.size() > 3) {
    biases = inputs[3];
  }
  const auto mode = static_cast<QuantizationMode>(problem.mode);
  if ((free || kind == MLX_ROW_POLICY_EXACT) &&
      qmv_streamed(
          x,
          w,
          scales,
          biases,
          std::nullopt,
          out,
          m,
          problem.bits,
          problem.group_size,
          mode,
          encoder)) {
    return true;
  }
  if (free) {
    return false;
  }
  out.set_data(cu::malloc_async(out.nbytes(), encoder));
  qmv(x,
      w,
      scales,
      biases,
      std::nullopt,
      out,
      problem.bits,
      problem.group_size,
      mode,
      encoder);
  return true;
}

bool computes_picks_alone(
    GatherQMM& primitive,
    const std::vector<array>& inputs,
    const array& x,
    const array& out,
    bool has_qmv) {
  if (out.size() == 0 || !is_row_dtype(out.dtype())) {
    return false;
  }
  const int m = out.shape(-2);
  const bool alone = keeps_rows(QmvProblem(primitive, inputs, x, out, m));
  if (alone && m > 1 && !has_qmv) {
    throw std::runtime_error(
        "[gather_qmm] The CUDA back-end cannot keep the bits of " +
        std::to_string(m) +
        " rows a pick with weights that are not transposed; give it one row a "
        "pick, or use the policy default");
  }
  return alone;
}

} // namespace mlx::core
