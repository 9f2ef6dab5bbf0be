#include "mlx/backend/metal/dense_plan.h"

#include <stdexcept>
#include <string>

namespace mlx::core {

namespace {

void check(const mlx_row_problem& p) {
  auto require = [](bool met, const char* what, int found) {
    if (!met) {
      throw std::invalid_argument(
          std::string("a dense product must have ") + what + ", found " +
          std::to_string(found));
    }
  };
  require(
      p.op == MLX_ROW_OP_MATMUL || p.op == MLX_ROW_OP_ADDMM,
      "the op matmul or addmm",
      p.op);
  require(
      p.dtype >= MLX_ROW_DTYPE_FLOAT32 && p.dtype <= MLX_ROW_DTYPE_BFLOAT16,
      "the type float32, float16 or bfloat16 (0 to 2)",
      p.dtype);
  require(p.m >= 1, "at least one row", p.m);
  require(p.n >= 1, "at least one output a row", p.n);
  require(p.k >= 1, "at least one value a row", p.k);
  require(p.batch >= 1, "at least one batch", p.batch);
}

// The kernel of one row and its tile, chosen as by gemv_axbpy in matmul.cpp.
void choose_alone(const mlx_row_problem& p, mlx_row_dense_plan& plan) {
  if (p.heads > 1) {
    plan.alone = MLX_ROW_ALONE_FOLD;
    return;
  }
  // AddMM has no kernel for a single output, and a batch takes gemv.
  if (p.n == 1 && p.batch == 1 && p.op == MLX_ROW_OP_MATMUL) {
    plan.alone = MLX_ROW_ALONE_DOT;
    return;
  }
  if (p.n == 1 || p.transpose) {
    plan.alone = MLX_ROW_ALONE_GEMV;
    const bool narrow = p.k <= 64;
    const bool deep = !narrow && p.k >= 16 * static_cast<int64_t>(p.n);
    plan.bm = narrow || deep ? 1 : p.n >= 4096 ? 8 : 4;
    plan.bn = deep ? 8 : 1;
    plan.sm = narrow ? 8 : 1;
    plan.sn = narrow ? 4 : 32;
    plan.tm = p.n < 4 ? 1 : 4;
    plan.tn = 4;
    return;
  }
  plan.alone = MLX_ROW_ALONE_GEMV_T;
  const bool deep = p.k >= 8192 && p.n >= 2048;
  plan.bm = 1;
  plan.bn = p.n >= 2048 ? 16 : p.n >= 512 ? 4 : 2;
  plan.sm = deep ? 4 : 8;
  plan.sn = deep ? 8 : 4;
  plan.tm = 4;
  plan.tn = p.n < 4 ? 1 : 4;
}

// There are as few passes over the weights as MLX_ROW_TILE_ROWS allows, and
// rows are distributed evenly; the kernels exist for these tiles.
int tile_of(int rows) {
  const int passes = (rows + MLX_ROW_TILE_ROWS - 1) / MLX_ROW_TILE_ROWS;
  const int most = (rows + passes - 1) / passes;
  for (int tile : {2, 3, 4, 6}) {
    if (most <= tile) {
      return tile;
    }
  }
  return MLX_ROW_TILE_ROWS;
}

} // namespace

mlx_row_dense_plan decide_dense(
    const mlx_row_problem& p,
    mlx_row_policy policy) {
  check(p);
  mlx_row_dense_plan plan{};
  plan.policy = policy;
  choose_alone(p, plan);
  const int kind = row_kind(policy, p);
  plan.identical = p.m == 1 || kind != MLX_ROW_POLICY_DEFAULT;
  if (p.m == 1 || kind == MLX_ROW_POLICY_DEFAULT) {
    plan.path = MLX_ROW_DENSE_UPSTREAM;
  } else if (kind != MLX_ROW_POLICY_EXACT || p.n == 1 || p.heads > 1) {
    plan.path = MLX_ROW_DENSE_BY_ROW;
  } else {
    plan.path = MLX_ROW_DENSE_STREAMED;
    plan.tile = tile_of(p.m);
  }
  return plan;
}

} // namespace mlx::core

extern "C" int mlx_row_decide_dense(
    const mlx_row_problem* problem,
    mlx_row_policy policy,
    mlx_row_dense_plan* plan) {
  using namespace mlx::core;
  return row_guarded([&] {
    check_row_policy("the policy", policy);
    *plan = decide_dense(*problem, policy);
  });
}
