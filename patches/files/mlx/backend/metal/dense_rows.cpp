#include "mlx/backend/metal/dense_rows.h"

#include <algorithm>
#include <optional>

#include "mlx/backend/common/compiled.h"
#include "mlx/backend/common/matmul.h"
#include "mlx/backend/gpu/copy.h"
#include "mlx/backend/metal/dense_plan.h"
#include "mlx/backend/metal/kernel_fingerprint.h"
#include "mlx/backend/metal/kernels.h"
#include "mlx/backend/metal/utils.h"
#include "mlx/row_problem.h"

namespace mlx::core {

namespace {

// A part of an array, or the array in another shape.
array view(const array& x, Shape shape, Strides strides, int64_t offset) {
  int64_t size = 1;
  bool row_contiguous = true;
  for (int i = static_cast<int>(shape.size()) - 1; i >= 0; i--) {
    row_contiguous = row_contiguous && (shape[i] == 1 || strides[i] == size);
    size *= shape[i];
  }
  array out(std::move(shape), x.dtype(), nullptr, {});
  // It is always safe to call an array not contiguous.
  out.copy_shared_buffer(
      x,
      std::move(strides),
      {row_contiguous, row_contiguous, false},
      size,
      offset);
  return out;
}

array copied(const array& x, const Stream& s) {
  array copy = contiguous_copy_gpu(x, s);
  metal::get_command_encoder(s).add_temporary(copy);
  return copy;
}

// Sequences that use the same matrix: (batch, m, n) as (batch * m, n).
array flattened(const array& given, const Stream& s) {
  const bool folds = given.shape(0) == 1 ||
      given.strides(0) == given.shape(1) * given.strides(1);
  const array x = folds ? given : copied(given, s);
  return view(
      x,
      {x.shape(0) * x.shape(1), x.shape(2)},
      {x.shape(1) == 1 ? x.strides(0) : x.strides(1), x.strides(2)},
      0);
}

// The rows first and each contiguous, as if it were alone: (m, batch, 1, k).
array rows_first(const array& x, const Stream& s) {
  const int batch_dims = x.ndim() - 2;
  Shape shape{x.shape(-2)};
  Strides strides{x.strides(batch_dims)};
  shape.insert(shape.end(), x.shape().begin(), x.shape().end() - 2);
  strides.insert(strides.end(), x.strides().begin(), x.strides().end() - 2);
  shape.insert(shape.end(), {1, x.shape(-1)});
  strides.insert(strides.end(), {0, x.strides(batch_dims + 1)});
  const bool contiguous = batch_dims == 0 && x.strides(1) == 1;
  const array rows = view(x, std::move(shape), std::move(strides), 0);
  return contiguous ? rows : copied(rows, s);
}

// Row r of the result of rows_first. It starts where the kernels may load
// several values at once, like a separate array: dot_product relies on that,
// and otherwise gemv_wide is not used.
array row_of(const array& rows, int r, const Stream& s) {
  constexpr int alignment = 16;
  Shape shape(rows.shape().begin() + 1, rows.shape().end());
  Strides strides(shape.size(), 1);
  for (int i = static_cast<int>(shape.size()) - 2; i >= 0; i--) {
    strides[i] = strides[i + 1] * shape[i + 1];
  }
  const array row =
      view(rows, std::move(shape), std::move(strides), r * rows.strides(0));
  return row.offset() % alignment == 0 ? row : copied(row, s);
}

// Each row as MLX computes it alone, with MLX's own code.
template <typename P>
void by_row(
    P& primitive,
    const array& a,
    const array& b,
    const array* c,
    array& out) {
  const auto& s = primitive.stream();
  auto& compute_encoder = metal::get_command_encoder(s);
  const int m = a.shape(-2), n = b.shape(-1);
  const int batch = out.size() / m / n;
  const array a_rows = rows_first(a, s);

  // A bias that is the same for all stays a broadcast, as for a row alone:
  // whether MLX folds heads depends on it.
  const bool same_bias = c &&
      std::all_of(c->strides().begin(),
                  c->strides().end() - 1,
                  [](auto stride) { return stride == 0; });
  Shape row_shape = a.shape();
  row_shape[row_shape.size() - 2] = 1;
  row_shape.back() = n;
  std::optional<array> c_rows;
  if (c) {
    c_rows =
        same_bias ? view(*c, row_shape, c->strides(), 0) : rows_first(*c, s);
  }
  for (int r = 0; r < m; r++) {
    std::vector<array> inputs{row_of(a_rows, r, s), b};
    if (c) {
      inputs.push_back(same_bias ? *c_rows : row_of(*c_rows, r, s));
    }
    array row(row_shape, out.dtype(), nullptr, {});
    primitive.eval_gpu(inputs, row);
    compute_encoder.add_temporary(row);
    copy_gpu_inplace(
        row,
        out,
        {batch, n},
        {n, 1},
        {int64_t(m) * n, 1},
        0,
        int64_t(r) * n,
        CopyType::GeneralGeneral,
        s);
  }
}

void streamed(
    const mlx_row_problem& problem,
    const mlx_row_dense_plan& plan,
    const array& a,
    const array& b,
    const array* c,
    float alpha,
    float beta,
    array& out,
    const Stream& s) {
  const bool transposed = plan.alone == MLX_ROW_ALONE_GEMV;
  const bool axpby = c && (alpha != 1.0f || beta != 0.0f);
  const char* function = transposed ? "gemv_rows" : "gemv_t_rows";
  std::string name;
  concatenate(
      name,
      function,
      "_",
      type_to_name(out),
      "_bm",
      plan.bm,
      "_bn",
      plan.bn,
      "_sm",
      plan.sm,
      "_sn",
      plan.sn,
      "_tm",
      plan.tm,
      "_tn",
      plan.tn,
      "_nv",
      plan.tile);
  const auto template_def = get_template_definition(
      name,
      function,
      get_type_string(out.dtype()),
      plan.bm,
      plan.bn,
      plan.sm,
      plan.sn,
      plan.tm,
      plan.tn,
      plan.tile);
  const metal::MTLFCList func_consts = {
      {&axpby, MTL::DataType::DataTypeBool, 20}};
  auto& d = metal::device(s.device);
  auto kernel = get_gemv_rows_kernel(
      d,
      name,
      name + (axpby ? "_axpby1" : "_axpby0"),
      func_consts,
      template_def);

  auto [batch_shape, a_strides, b_strides, c_strides] =
      collapse_batches(a, b, c ? *c : a);
  const int batch_ndim = batch_shape.size();
  const int last = a.ndim() - 1;
  const int matrix_ld = b.strides(transposed ? last : last - 1);
  const int64_t a_ld = a.strides(last - 1);

  auto& compute_encoder = metal::get_command_encoder(s);
  compute_encoder.set_compute_pipeline_state(kernel);
  compute_encoder.set_input_array(b, 0);
  compute_encoder.set_input_array(a, 1);
  compute_encoder.set_output_array(out, 3);
  compute_encoder.set_bytes(problem.k, 4);
  compute_encoder.set_bytes(problem.n, 5);
  compute_encoder.set_bytes(problem.m, 6);
  compute_encoder.set_bytes(matrix_ld, 7);
  compute_encoder.set_bytes(a_ld, 8);
  compute_encoder.set_bytes(batch_ndim, 9);
  compute_encoder.set_vector_bytes(batch_shape, 10);
  compute_encoder.set_vector_bytes(a_strides, 11);
  compute_encoder.set_vector_bytes(b_strides, 12);
  if (axpby) {
    const int64_t bias_ld = c->strides(last - 1);
    const int bias_stride = c->strides(last);
    compute_encoder.set_input_array(*c, 2);
    compute_encoder.set_vector_bytes(c_strides, 13);
    compute_encoder.set_bytes(bias_ld, 14);
    compute_encoder.set_bytes(bias_stride, 15);
    compute_encoder.set_bytes(alpha, 16);
    compute_encoder.set_bytes(beta, 17);
  }
  const int outputs =
      transposed ? plan.bm * plan.sm * plan.tm : plan.bn * plan.sn * plan.tn;
  const MTL::Size grid(
      (problem.n + outputs - 1) / outputs,
      (problem.m + plan.tile - 1) / plan.tile,
      problem.batch);
  compute_encoder.dispatch_threadgroups(grid, MTL::Size(32, plan.bn, plan.bm));
}

// Heads that MLX folds into the rows of one position: all products of the batch
// share one matrix.
bool folds_heads(const array& b) {
  for (int i = 0; i + 2 < static_cast<int>(b.ndim()); i++) {
    if (b.shape(i) != 1 && b.strides(i) != 0) {
      return false;
    }
  }
  return true;
}

template <typename P>
bool rows_of_product(
    P& primitive,
    int op,
    float alpha,
    float beta,
    const std::vector<array>& inputs,
    array& out) {
  array a = inputs[0], b = inputs[1];
  std::optional<array> c;
  if (inputs.size() > 2) {
    c = inputs[2];
  }
  if (!is_row_dtype(out.dtype()) || out.size() == 0 || a.size() == 0) {
    return false;
  }
  // Sequences that use the same matrix are rows; with two dimensions MLX has
  // folded them already. With more, the other dimensions of the batch are
  // heads.
  const bool sequences = b.ndim() == 3 && a.shape(0) > 1 && b.strides(0) == 0;
  const int m = a.shape(-2) * (sequences ? a.shape(0) : 1);
  if (m == 1) {
    return false;
  }

  mlx_row_problem problem{};
  problem.op = op;
  problem.dtype = row_dtype(out.dtype());
  problem.m = m;
  problem.n = b.shape(-1);
  problem.k = a.shape(-1);
  problem.batch = out.size() / m / problem.n;
  problem.experts = 1;
  problem.heads = problem.batch > 1 && folds_heads(b) ? problem.batch : 0;
  problem.stream = primitive.stream().index;
  // Reads the strides like check_transpose in matmul.cpp.
  const int last = b.ndim() - 1;
  const bool plain = b.strides(last) == 1;
  problem.transpose = !plain && b.strides(last - 1) == 1;
  const auto plan = decide_dense(problem, row_policy_of(problem));
  if (plan.path == MLX_ROW_DENSE_UPSTREAM) {
    return false;
  }

  check_kernels_of_build();
  const auto& s = primitive.stream();
  out.set_data(allocator::malloc(out.nbytes()));
  if (!plain && !problem.transpose) {
    b = copied(b, s);
  }
  std::optional<array> flat;
  if (sequences) {
    a = flattened(a, s);
    c = c ? std::optional(flattened(*c, s)) : c;
    b = view(
        b, {problem.k, problem.n}, {b.strides(last - 1), b.strides(last)}, 0);
    flat = view(out, {m, problem.n}, {problem.n, 1}, 0);
  }
  const array* bias = c ? &*c : nullptr;
  array& rows = flat ? *flat : out;
  if (plan.path == MLX_ROW_DENSE_STREAMED) {
    if (a.strides(a.ndim() - 1) != 1) {
      a = copied(a, s);
    }
    streamed(problem, plan, a, b, bias, alpha, beta, rows, s);
  } else {
    by_row(primitive, a, b, bias, rows);
  }
  return true;
}

} // namespace

bool dense_rows(
    Matmul& primitive,
    const std::vector<array>& inputs,
    array& out) {
  return rows_of_product(primitive, MLX_ROW_OP_MATMUL, 1.0f, 0.0f, inputs, out);
}

bool dense_rows(
    AddMM& primitive,
    const std::vector<array>& inputs,
    array& out) {
  const auto [alpha, beta] = primitive.state();
  return rows_of_product(primitive, MLX_ROW_OP_ADDMM, alpha, beta, inputs, out);
}

} // namespace mlx::core
