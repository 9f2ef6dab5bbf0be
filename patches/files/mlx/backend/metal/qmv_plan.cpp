#include "mlx/backend/metal/qmv_plan.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

namespace mlx::core {

namespace {

// The kernels come with separate patches, those of the fp modes with another
// one; without them the policies keep their promise with one-row kernels.
#if __has_include("mlx/backend/metal/kernels/qmv_streamed.h")
constexpr bool has_streamed_kernels = true;
#else
constexpr bool has_streamed_kernels = false;
#endif
#if __has_include("mlx/backend/metal/kernels/fp_qmv_streamed.h")
constexpr bool has_fp_streamed_kernels = has_streamed_kernels;
#else
constexpr bool has_fp_streamed_kernels = false;
#endif

// Instantiated in kernels/qmv_streamed.metal and kernels/fp_qmv_streamed.metal.
// Five values keep the library small; the kernels for 6 and 8 have a second
// body for one row fewer.
constexpr std::array<int, 5> streamed_tiles = {2, 3, 4, 6, 8};
static_assert(streamed_tiles.back() == MLX_ROW_TILE_ROWS);

constexpr std::array<const char*, MLX_ROW_PATH_COUNT> path_names = {
    "none",
    "qmv_quad",
    "qmv",
    "qmv_wide",
    "qmv_streamed",
    "rows",
    "matrix",
    "sorted",
    "qmv_streamed_alt"};

// Callers in other languages declare these structs field by field.
static_assert(
    sizeof(mlx_row_problem) == 17 * 4 && sizeof(mlx_row_upstream) == 4 * 4 &&
    sizeof(mlx_row_route) == 10 * 4 && sizeof(mlx_row_plan) == 8 * 4);

using Problem = mlx_row_problem;
using Route = mlx_row_route;

// Avoids the sum, which may overflow an int.
int ceil_div(int a, int b) {
  return a / b + (a % b != 0);
}

bool is_affine(const Problem& p) {
  return p.mode == MLX_ROW_MODE_AFFINE;
}

bool is_gather(const Problem& p) {
  return p.op == MLX_ROW_OP_GATHER_QMM || p.op == MLX_ROW_OP_GATHER_QQMM;
}

// Like dispatch_qmv in quantized.cpp, which comes first.
bool takes_quad(const Problem& p) {
  return (p.k == 128 || (p.k == 64 && p.bits >= 2)) &&
      (p.bits & (p.bits - 1)) == 0 && !p.global_scale;
}

// What qmv_wide can compute, if MLX allows it.
bool can_take_wide(const Problem& p) {
  return p.transpose && !is_gather(p) && !takes_quad(p) && !p.global_scale;
}

// Like GatherQMM and GatherQQMM there.
bool is_sorted_batch(const Problem& p) {
  return is_gather(p) && p.m == 1 && p.right_sorted && p.batch >= 16 &&
      p.batch / p.experts >= 4;
}

bool can_stream(const Problem& p) {
  return is_affine(p) ? has_streamed_kernels : has_fp_streamed_kernels;
}

bool is_streamed(int path) {
  return path == MLX_ROW_PATH_STREAMED || path == MLX_ROW_PATH_STREAMED_ALT;
}

// The outputs per simdgroup of a streamed kernel, and how many simdgroups share
// x in threadgroup memory (0: none).
struct Arrangement {
  int outputs, sharing;
};

// With few outputs, small threadgroups that never wait for each other fill a
// GPU sooner. Those kernels exist for single products.
bool has_few_outputs(const Problem& p) {
  return p.n <= 2048 && p.batch <= 1;
}

// The arrangement with fewer registers, which uses no threadgroup memory.
constexpr Arrangement lean = {2, 0};

// Chosen so that no registers spill if there are 128, and then by measurement:
// docs/decisions/loop-shape.md.
Arrangement shared_arrangement(const Problem& p, int tile) {
  if (p.bits == 8) {
    return {4, 0};
  }
  return {4, is_affine(p) && p.bits == 4 && tile == 8 ? 8 : 4};
}

// At 8 bits one arrangement is the fastest for all N, and there is no other.
bool has_alternative(const Problem& p) {
  return p.bits < 8 && p.batch <= 1;
}

Arrangement arrangement_of(const Problem& p, int path, int tile) {
  if (!is_streamed(path)) {
    return {0, 0};
  }
  const bool other = path == MLX_ROW_PATH_STREAMED_ALT;
  const bool is_lean = has_alternative(p) && has_few_outputs(p) != other;
  return is_lean ? lean : shared_arrangement(p, tile);
}

bool matches(const Route& r, const Problem& p) {
  auto is = [](int v, int wanted, int any) {
    return wanted == any || wanted == v;
  };
  auto within = [](int v, int lo, int hi) { return lo <= v && v <= hi; };
  return is(p.mode, r.mode, MLX_ROW_MODE_ANY) && is(p.bits, r.bits, 0) &&
      is(p.group_size, r.group_size, 0) && within(p.n, r.n_min, r.n_max) &&
      within(p.k, r.k_min, r.k_max) && within(p.m, r.m_min, r.m_max);
}

bool may_take(const Problem& p, int kind, int path) {
  switch (path) {
    case MLX_ROW_PATH_WIDE:
      return kind == MLX_ROW_POLICY_DEFAULT && can_take_wide(p);
    case MLX_ROW_PATH_STREAMED:
      return can_stream(p);
    case MLX_ROW_PATH_STREAMED_ALT:
      return can_stream(p) && has_alternative(p);
    default:
      return true;
  }
}

int choose_path(
    const Problem& p,
    const mlx_row_upstream& upstream,
    int kind,
    const Route* routes,
    size_t route_count) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) {
    return MLX_ROW_PATH_NONE;
  }
  if (upstream.matrix_kernels && kind == MLX_ROW_POLICY_DEFAULT) {
    if (is_sorted_batch(p)) {
      return MLX_ROW_PATH_SORTED;
    }
    if (p.m >= upstream.batch_limit) {
      return MLX_ROW_PATH_MATRIX;
    }
  }
  if (is_gather(p) || !p.transpose) {
    return MLX_ROW_PATH_ROWS;
  }
  if (takes_quad(p)) {
    return MLX_ROW_PATH_QUAD;
  }
  if (kind == MLX_ROW_POLICY_WIDE && can_take_wide(p)) {
    return MLX_ROW_PATH_WIDE;
  }
  if (p.m == 1 || kind == MLX_ROW_POLICY_NARROW ||
      kind == MLX_ROW_POLICY_WIDE) {
    return MLX_ROW_PATH_QMV;
  }
  const auto route = std::find_if(routes, routes + route_count, [&](auto& r) {
    return matches(r, p) && may_take(p, kind, r.path);
  });
  if (route != routes + route_count) {
    return route->path;
  }
  if (kind == MLX_ROW_POLICY_DEFAULT) {
    return upstream.wide ? MLX_ROW_PATH_WIDE : MLX_ROW_PATH_QMV;
  }
  return can_stream(p) ? MLX_ROW_PATH_STREAMED : MLX_ROW_PATH_QMV;
}

// The fewest tiles of at most `most` rows, then the smallest that fills them.
int smallest_tile(int m, int most) {
  return ceil_div(m, ceil_div(m, most));
}

// At one bit a lane holds 32 values of each row; more rows are too many.
int most_streamed_rows(const Problem& p) {
  return p.bits == 1 ? 4 : MLX_ROW_TILE_ROWS;
}

int tile_of(const Problem& p, int kind, int path) {
  switch (path) {
    case MLX_ROW_PATH_WIDE:
      // Under `wide`, the instantiations that MLX itself has; a single row
      // takes the smallest.
      if (kind == MLX_ROW_POLICY_WIDE) {
        return std::max(2, smallest_tile(p.m, 5));
      }
      // Like qmv_wide in quantized.cpp.
      return smallest_tile(p.m, is_affine(p) && p.n > 2048 ? 8 : 5);
    case MLX_ROW_PATH_STREAMED:
    case MLX_ROW_PATH_STREAMED_ALT:
      return *std::lower_bound(
          streamed_tiles.begin(),
          streamed_tiles.end(),
          smallest_tile(p.m, most_streamed_rows(p)));
    case MLX_ROW_PATH_QUAD:
    case MLX_ROW_PATH_QMV:
    case MLX_ROW_PATH_ROWS:
      return 1;
    default:
      return 0;
  }
}

// Whether rows have the same bits as alone under the policy, even beyond its
// block. A single row is its own reference, unless the batch decides the
// kernel.
bool keeps_bits(const Problem& p, mlx_row_policy policy, int path) {
  const bool alone_wide =
      policy.kind == MLX_ROW_POLICY_WIDE && can_take_wide(p);
  switch (path) {
    case MLX_ROW_PATH_SORTED:
      return false;
    case MLX_ROW_PATH_WIDE:
      return p.m <= 1 || alone_wide;
    case MLX_ROW_PATH_QMV:
    case MLX_ROW_PATH_STREAMED:
    case MLX_ROW_PATH_STREAMED_ALT:
      return p.m <= 1 || !alone_wide;
    case MLX_ROW_PATH_MATRIX:
      return p.m <= 1;
    default:
      return true;
  }
}

///////////////////////////////////////////////////////////////////////////////
// Bad input
///////////////////////////////////////////////////////////////////////////////

void expect(bool ok, const char* field, const std::string& what, int found) {
  if (!ok) {
    throw std::invalid_argument(
        std::string(field) + " must be " + what + ", found " +
        std::to_string(found));
  }
}

void check(const Route& r, const std::string& name) {
  expect(
      r.mode >= MLX_ROW_MODE_ANY && r.mode < MLX_ROW_MODE_COUNT,
      (name + "mode").c_str(),
      "0 to 3 or -1 for any",
      r.mode);
  if (r.n_min > r.n_max || r.k_min > r.k_max || r.m_min > r.m_max) {
    throw std::invalid_argument(name + "a range ends before it starts");
  }
  if (r.path != MLX_ROW_PATH_QMV && r.path != MLX_ROW_PATH_WIDE &&
      !is_streamed(r.path)) {
    const char* found = mlx_row_path_name(r.path);
    throw std::invalid_argument(
        name +
        "path must be qmv, qmv_wide, qmv_streamed or qmv_streamed_alt, found " +
        (found ? found : std::to_string(r.path)));
  }
}

} // namespace

// Rejects values that would divide by zero or index beyond a table. Whether MLX
// has such a format is decided by MLX.
void check_problem(const mlx_row_problem& p) {
  expect(
      p.op >= 0 && p.op <= MLX_ROW_OP_GATHER_QQMM,
      "op",
      "0 to 3, a quantized product",
      p.op);
  expect(p.mode >= 0 && p.mode < MLX_ROW_MODE_COUNT, "mode", "0 to 3", p.mode);
  expect(p.bits >= 1 && p.bits <= 8, "bits", "1 to 8", p.bits);
  expect(p.group_size >= 1, "group_size", "1 or more", p.group_size);
  expect(
      !p.global_scale || p.mode == MLX_ROW_MODE_NVFP4,
      "global_scale",
      "0 in other modes than nvfp4",
      p.global_scale);
  expect(p.m >= 0, "m", "0 or more", p.m);
  expect(p.n >= 0, "n", "0 or more", p.n);
  expect(p.batch >= 0, "batch", "0 or more", p.batch);
  expect(p.experts >= 1, "experts", "1 or more", p.experts);
  // Weights are packed and grouped along the last axis of their matrix.
  const int packed = p.transpose ? p.k : p.n;
  expect(
      p.k >= 1 && packed % p.group_size == 0,
      p.transpose ? "k" : "n",
      "a positive multiple of the group size, " + std::to_string(p.group_size),
      packed);
}

void check_routes(const mlx_row_route* routes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    check(routes[i], "route " + std::to_string(i) + ": ");
  }
}

mlx_row_plan decide_qmv(
    const mlx_row_problem& problem,
    const mlx_row_upstream& upstream,
    mlx_row_policy policy,
    const mlx_row_route* routes,
    size_t route_count) {
  const int kind = row_kind(policy, problem);
  const int path = choose_path(problem, upstream, kind, routes, route_count);
  const bool has_fast_kernel = path == MLX_ROW_PATH_QMV || is_streamed(path) ||
      path == MLX_ROW_PATH_ROWS;
  const int tile = tile_of(problem, kind, path);
  const auto arrangement = arrangement_of(problem, path, tile);
  return {
      policy,
      path,
      has_fast_kernel && upstream.fast,
      tile,
      arrangement.outputs,
      arrangement.sharing,
      keeps_bits(problem, policy, path)};
}

} // namespace mlx::core

using namespace mlx::core;

extern "C" {

const char* mlx_row_path_name(int32_t path) {
  const bool known = path >= 0 && path < MLX_ROW_PATH_COUNT;
  return known ? path_names[path] : nullptr;
}

int mlx_row_decide(
    const mlx_row_problem* problem,
    const mlx_row_upstream* upstream,
    mlx_row_policy policy,
    const mlx_row_route* routes,
    size_t route_count,
    mlx_row_plan* plan) {
  return row_guarded([&] {
    check_row_policy("the policy", policy);
    check_problem(*problem);
    check_routes(routes, route_count);
    *plan = decide_qmv(*problem, *upstream, policy, routes, route_count);
  });
}

} // extern "C"
