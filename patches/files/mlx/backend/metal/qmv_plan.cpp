#include "mlx/backend/metal/qmv_plan.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <utility>
#include <vector>

namespace mlx::core {

namespace {

// The kernels come with patches of their own, those of the fp modes with
// another one; without them the policies keep their promise with one-row
// kernels.
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
// Five values keep the library small; without 5 and 7 at most one vector in six
// is computed for nothing.
constexpr std::array<int, 5> streamed_tiles = {2, 3, 4, 6, 8};
static_assert(streamed_tiles.back() == MLX_QMV_STREAMED_ROWS);

constexpr std::array<const char*, 4> policy_names = {
    "default",
    "narrow",
    "streamed",
    "exact"};
constexpr std::array<const char*, 4> mode_names = {
    "affine",
    "mxfp4",
    "mxfp8",
    "nvfp4"};
constexpr std::array<const char*, 3> type_names = {
    "float",
    "float16_t",
    "bfloat16_t"};
constexpr std::array<int, 3> type_sizes = {4, 2, 2};
constexpr std::array<const char*, MLX_QMV_PATH_COUNT> path_names = {
    "none",
    "qmv_quad",
    "qmv",
    "qmv_wide",
    "qmv_streamed",
    "qvm",
    "qvm_split_k",
    "qmm",
    "qmm_split_k",
    "gather_qmv",
    "gather_qvm",
    "gather_qmm",
    "gather_qmm_rhs"};

using Problem = mlx_qmv_problem;
using Route = mlx_qmv_route;
using Plan = mlx_qmv_plan;

thread_local std::string last_error;

int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

bool is_affine(const Problem& p) {
  return p.mode == MLX_QMV_MODE_AFFINE;
}

bool is_gather(const Problem& p) {
  return p.op == MLX_QMV_OP_GATHER_QMM || p.op == MLX_QMV_OP_GATHER_QQMM;
}

bool is_power_of_2(int bits) {
  return (bits & (bits - 1)) == 0;
}

bool takes_quad(const Problem& p) {
  return (p.k == 128 || (p.k == 64 && p.bits >= 2)) && is_power_of_2(p.bits) &&
      !p.global_scale;
}

// Affine qmv_wide pays from generation 15 on only.
bool prefers_wide(const Problem& p) {
  return !p.global_scale && (!is_affine(p) || p.arch_generation >= 15);
}

bool can_stream(const Problem& p) {
  return is_affine(p) ? has_streamed_kernels : has_fp_streamed_kernels;
}

int wide_tile(const Problem& p) {
  const int n_tiles = ceil_div(p.m, is_affine(p) ? 8 : 5);
  return ceil_div(p.m, n_tiles);
}

// get_qmv_batch_limit in quantized.cpp. A dispatch brings MLX's own answer;
// this one serves plans made without a device, and a test compares the two.
int architecture_batch_limit(const Problem& p) {
  const bool small = p.k <= 2048 && p.n <= 2048;
  const bool medium = p.k <= 4096 && p.n <= 4096;
  auto by_size = [&](int s, int m, int l) {
    return small ? s : medium ? m : l;
  };
  const bool ultra = p.arch_size == 'd';
  if (ultra) {
    return by_size(32, 18, 12);
  }
  if (p.arch_generation >= 17) {
    return by_size(33, 25, 13);
  }
  if (p.arch_generation >= 15) {
    return by_size(13, 15, 13);
  }
  if (p.arch_generation >= 13) {
    const bool max = p.arch_generation == 13 && p.arch_size == 's';
    return by_size(14, 10, max ? 7 : 6);
  }
  return by_size(18, 12, 10);
}

int batch_limit(const Problem& p) {
  if (p.batch_limit > 0) {
    return p.batch_limit;
  }
  return p.transpose ? architecture_batch_limit(p) : 4;
}

bool permits(int policy, int path) {
  return policy == MLX_QMV_POLICY_DEFAULT || path != MLX_QMV_PATH_WIDE;
}

bool can_take(const Problem& p, int path) {
  switch (path) {
    case MLX_QMV_PATH_WIDE:
      return !p.global_scale;
    case MLX_QMV_PATH_STREAMED:
      return can_stream(p);
    default:
      return true;
  }
}

bool matches(const Route& r, const Problem& p) {
  auto is = [](int v, int wanted, int any) {
    return wanted == any || wanted == v;
  };
  auto within = [](int v, int lo, int hi) { return lo <= v && v <= hi; };
  return is(p.mode, r.mode, MLX_QMV_MODE_ANY) && is(p.bits, r.bits, 0) &&
      is(p.group_size, r.group_size, 0) && within(p.n, r.n_min, r.n_max) &&
      within(p.k, r.k_min, r.k_max) && within(p.m, r.m_min, r.m_max);
}

///////////////////////////////////////////////////////////////////////////////
// Names, grids and traffic
///////////////////////////////////////////////////////////////////////////////

std::string kernel_stem(const Problem& p, const char* function) {
  return std::string(mode_names[p.mode]) + "_" + function + "_" +
      type_names[p.dtype] + "_gs_" + std::to_string(p.group_size) + "_b_" +
      std::to_string(p.bits);
}

const char* batch_suffix(const Problem& p) {
  return p.batch > 1 ? "_batch_1" : "_batch_0";
}

const char* scale_suffix(const Problem& p) {
  return p.global_scale ? "_hgs" : "";
}

const char* aligned_suffix(const Problem& p, int tile) {
  return p.n % tile == 0 ? "_alN_true" : "_alN_false";
}

void set_grid(Plan& plan, int x, int y, int z, int gx, int gy, int gz) {
  const int32_t grid[] = {x, y, z};
  const int32_t group[] = {gx, gy, gz};
  std::copy_n(grid, 3, plan.grid);
  std::copy_n(group, 3, plan.group);
}

// Row by row: one threadgroup column a row of x.
void set_rows(Plan& plan, const Problem& p, int outputs, int gx, int gy) {
  plan.tile = 1;
  plan.tiles = plan.weight_passes = p.m;
  plan.identical = 1;
  set_grid(plan, p.m, ceil_div(p.n, outputs), p.batch, gx, gy, 1);
}

// Tiles of rows: each tile reads the weights once.
void set_tiles(Plan& plan, const Problem& p, int tile, int outputs) {
  plan.tile = tile;
  plan.tiles = plan.weight_passes = ceil_div(p.m, tile);
  set_grid(plan, plan.tiles, ceil_div(p.n, outputs), p.batch, 32, 2, 1);
}

// Blocks of rows and outputs, the outputs along the grid's first axis.
void set_blocks(Plan& plan, const Problem& p, int bm, int bn) {
  plan.tile = bm;
  plan.tiles = plan.weight_passes = ceil_div(p.m, bm);
  set_grid(plan, ceil_div(p.n, bn), plan.tiles, p.batch, 32, 2, 2);
}

std::string describe_quad(const Problem& p, Plan& plan) {
  set_rows(plan, p, 64, 32, 1);
  return kernel_stem(p, "qmv_quad") + "_d_" + std::to_string(p.k) +
      batch_suffix(p);
}

std::string describe_qmv(const Problem& p, Plan& plan) {
  const bool fast = qmv_is_fast(p.bits, p.k);
  const bool partial_rows = fast && p.n % 8 != 0;
  const bool narrow = fast && p.n >= 4096 && p.arch_generation == 17 &&
      p.arch_size == 's' && p.mode == MLX_QMV_MODE_NVFP4;
  const int rows = narrow ? 2 : 4;
  set_rows(plan, p, 2 * rows, 32, 2);
  return kernel_stem(p, fast ? "qmv_fast" : "qmv") + batch_suffix(p) +
      (partial_rows ? "_pr_1" : "_pr_0") +
      (p.global_scale ? "_hgs_1" : "_hgs_0") + "_r_" + std::to_string(rows);
}

std::string describe_wide(const Problem& p, Plan& plan) {
  const int k_lanes = is_affine(p) ? 8 : 16;
  const int tile = wide_tile(p);
  set_tiles(plan, p, tile, 2 * 32 / k_lanes);
  // One row takes the one-row kernel, which adds in another order.
  plan.identical = 0;
  return kernel_stem(p, "qmv_wide") + "_nv_" + std::to_string(tile) + "_kl_" +
      std::to_string(k_lanes) + batch_suffix(p);
}

std::string describe_streamed(const Problem& p, Plan& plan) {
  // The fewest tiles, then the smallest instantiated one that fills them.
  const int n_tiles = ceil_div(p.m, MLX_QMV_STREAMED_ROWS);
  const int rows = ceil_div(p.m, n_tiles);
  const int tile =
      *std::lower_bound(streamed_tiles.begin(), streamed_tiles.end(), rows);
  set_tiles(plan, p, tile, 8);
  plan.identical = 1;
  const bool fast = qmv_is_fast(p.bits, p.k);
  return kernel_stem(p, fast ? "qmv_streamed_fast" : "qmv_streamed") + "_nv_" +
      std::to_string(tile) + batch_suffix(p) + scale_suffix(p);
}

std::string describe_qvm(const Problem& p, Plan& plan, bool split) {
  const int split_k = split ? (p.k > 8192 ? 32 : 8) : 1;
  set_rows(plan, p, std::min(p.group_size, 32) * 2, 32, 2);
  plan.grid[2] *= split_k;
  if (split) {
    return kernel_stem(p, "qvm_split_k") + "_spk_" + std::to_string(split_k);
  }
  return kernel_stem(p, "qvm") + batch_suffix(p) + scale_suffix(p);
}

std::string describe_qmm(const Problem& p, Plan& plan) {
  const bool nax = p.nax && (p.transpose || is_affine(p)) && p.k % 64 == 0 &&
      (p.transpose || p.n % 64 == 0) &&
      (p.tf32 || p.dtype != MLX_QMV_DTYPE_FLOAT32);
  if (!nax) {
    set_blocks(plan, p, 32, 32);
    return kernel_stem(p, p.transpose ? "qmm_t" : "qmm_n") +
        (p.transpose ? aligned_suffix(p, 32) : "") + batch_suffix(p) +
        scale_suffix(p);
  }
  const int bm = p.transpose && p.m <= 32 ? 32 : 64;
  set_blocks(plan, p, bm, 64);
  return kernel_stem(p, p.transpose ? "qmm_t_nax" : "qmm_n_nax") + "_bm" +
      std::to_string(bm) + "_bn64_bk64_wm2_wn2" +
      (p.transpose ? aligned_suffix(p, 64) : "") + batch_suffix(p) +
      scale_suffix(p);
}

// The parts that qmm_splitk cuts K into; 1: it hands over to qmm.
int qmm_split_k(const Problem& p) {
  const int k_align = std::max(p.group_size, 32);
  int split_k = std::max(1, 512 / (ceil_div(p.n, 32) * ceil_div(p.m, 32)));
  split_k = std::min(split_k, p.k / k_align);
  while (split_k > 1 && p.k % (split_k * k_align) != 0) {
    split_k--;
  }
  return split_k;
}

std::string describe_qmm_split_k(const Problem& p, Plan& plan) {
  set_blocks(plan, p, 32, 32);
  plan.grid[2] = qmm_split_k(p);
  return kernel_stem(p, "qmm_t_splitk") + aligned_suffix(p, 32);
}

std::string describe_gather_qmv(const Problem& p, Plan& plan) {
  const bool fast = p.n % 8 == 0 && qmv_is_fast(p.bits, p.k);
  set_rows(plan, p, 8, 32, 2);
  return kernel_stem(p, fast ? "gather_qmv_fast" : "gather_qmv") +
      scale_suffix(p);
}

std::string describe_gather_qvm(const Problem& p, Plan& plan) {
  set_rows(plan, p, std::min(p.group_size, 32) * 2, 32, 2);
  return kernel_stem(p, "gather_qvm") + scale_suffix(p);
}

std::string describe_gather_qmm(const Problem& p, Plan& plan) {
  const bool nax = p.nax && p.transpose && p.k % 64 == 0 &&
      (p.tf32 || p.dtype != MLX_QMV_DTYPE_FLOAT32);
  if (nax) {
    set_blocks(plan, p, 64, 64);
    return kernel_stem(p, "gather_qmm_t_nax") + "_bm64_bn64_bk64_wm2_wn2" +
        aligned_suffix(p, 64) + scale_suffix(p);
  }
  set_blocks(plan, p, 32, 32);
  return kernel_stem(p, p.transpose ? "gather_qmm_t" : "gather_qmm_n") +
      (p.transpose ? aligned_suffix(p, 32) : "") + scale_suffix(p);
}

std::string describe_gather_qmm_rhs(const Problem& p, Plan& plan) {
  const bool nax = p.nax && (p.tf32 || p.dtype != MLX_QMV_DTYPE_FLOAT32);
  const int rows = p.batch; // m is 1: the products are the rows
  const int bm = !nax ? 16 : rows / p.experts < 64 ? 32 : 64;
  const int bn = nax ? 64 : 32;
  plan.tile = bm;
  plan.tiles = std::min(rows, ceil_div(rows, bm) + p.experts - 1);
  set_grid(plan, ceil_div(p.n, bn), plan.tiles, 1, 32, 2, nax ? 2 : 1);
  const std::string transpose = p.transpose ? "nt" : "nn";
  if (nax) {
    const std::string function = "gather_qmm_rhs_nax_" + transpose;
    return kernel_stem(p, function.c_str()) + "_bm_" + std::to_string(bm) +
        "_bn_64_bk_64_wm_2_wn_2" + scale_suffix(p);
  }
  const std::string function = "gather_qmm_rhs_" + transpose;
  return kernel_stem(p, function.c_str()) + "_bm_16_bn_32_bk_32_wm_1_wn_2" +
      scale_suffix(p);
}

int64_t matrix_bytes(const Problem& p) {
  const int64_t weights = int64_t(p.n) * p.k;
  // Affine has a scale and a bias of x's type a group, the others a byte.
  const int64_t group_bytes = is_affine(p) ? 2 * type_sizes[p.dtype] : 1;
  return weights * p.bits / 8 + weights / p.group_size * group_bytes;
}

int choose_path(
    const Problem& p,
    int policy,
    const Route* routes,
    size_t route_count) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) {
    return MLX_QMV_PATH_NONE;
  }
  const bool matrix =
      p.matrix_kernels && p.m >= qmv_batch_limit(policy, batch_limit(p));
  if (is_gather(p)) {
    const bool rhs = p.m == 1 && p.batch >= 16 && p.right_sorted &&
        p.batch / p.experts >= 4 && p.matrix_kernels;
    if (rhs && policy != MLX_QMV_POLICY_EXACT) {
      return MLX_QMV_PATH_GATHER_QMM_RHS;
    }
    return matrix     ? MLX_QMV_PATH_GATHER_QMM
        : p.transpose ? MLX_QMV_PATH_GATHER_QMV
                      : MLX_QMV_PATH_GATHER_QVM;
  }
  if (matrix) {
    const bool split = p.op == MLX_QMV_OP_QUANTIZED_MATMUL && p.transpose &&
        p.batch == 1 && qmm_split_k(p) > 1;
    return split ? MLX_QMV_PATH_QMM_SPLIT_K : MLX_QMV_PATH_QMM;
  }
  if (!p.transpose) {
    return p.k < 1024 ? MLX_QMV_PATH_QVM : MLX_QMV_PATH_QVM_SPLIT_K;
  }
  return qmv_path(p, policy, routes, route_count);
}

std::string describe(const Problem& p, Plan& plan) {
  switch (plan.path) {
    case MLX_QMV_PATH_QUAD:
      return describe_quad(p, plan);
    case MLX_QMV_PATH_QMV:
      return describe_qmv(p, plan);
    case MLX_QMV_PATH_WIDE:
      return describe_wide(p, plan);
    case MLX_QMV_PATH_STREAMED:
      return describe_streamed(p, plan);
    case MLX_QMV_PATH_QVM:
      return describe_qvm(p, plan, false);
    case MLX_QMV_PATH_QVM_SPLIT_K:
      return describe_qvm(p, plan, true);
    case MLX_QMV_PATH_QMM:
      return describe_qmm(p, plan);
    case MLX_QMV_PATH_QMM_SPLIT_K:
      return describe_qmm_split_k(p, plan);
    case MLX_QMV_PATH_GATHER_QMV:
      return describe_gather_qmv(p, plan);
    case MLX_QMV_PATH_GATHER_QVM:
      return describe_gather_qvm(p, plan);
    case MLX_QMV_PATH_GATHER_QMM:
      return describe_gather_qmm(p, plan);
    case MLX_QMV_PATH_GATHER_QMM_RHS:
      return describe_gather_qmm_rhs(p, plan);
    default:
      return "";
  }
}

///////////////////////////////////////////////////////////////////////////////
// Bad input
///////////////////////////////////////////////////////////////////////////////

bool one_of(int value, const std::vector<int>& allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

std::string expected(const char* field, const std::string& what, int found) {
  return std::string(field) + " must be " + what + ", found " +
      std::to_string(found);
}

// As in "32, 64 or 128".
std::string enumerate(const std::vector<int>& values) {
  std::string text;
  for (size_t i = 0; i < values.size(); i++) {
    text += i == 0 ? "" : i + 1 < values.size() ? ", " : " or ";
    text += std::to_string(values[i]);
  }
  return text;
}

std::vector<int> bits_in(int mode) {
  switch (mode) {
    case MLX_QMV_MODE_MXFP4:
    case MLX_QMV_MODE_NVFP4:
      return {4};
    case MLX_QMV_MODE_MXFP8:
      return {8};
    default:
      return {1, 2, 3, 4, 5, 6, 8};
  }
}

std::vector<int> group_sizes_in(int mode) {
  switch (mode) {
    case MLX_QMV_MODE_ANY:
      return {16, 32, 64, 128};
    case MLX_QMV_MODE_AFFINE:
      return {32, 64, 128};
    case MLX_QMV_MODE_NVFP4:
      return {16};
    default:
      return {32};
  }
}

// What is wrong with the bits or the group size in a mode, or nothing. With
// `open`, 0 leaves them open.
std::string complain_of_format(int mode, int bits, int group_size, bool open) {
  auto complain_of = [&](const char* field, std::vector<int> allowed, int v) {
    if (open) {
      allowed.push_back(0);
    }
    if (one_of(v, allowed)) {
      return std::string();
    }
    auto what = enumerate(allowed) + (open ? " for any" : "");
    if (mode != MLX_QMV_MODE_ANY) {
      what += std::string(" in mode ") + mode_names[mode];
    }
    return expected(field, what, v);
  };
  auto complaint = complain_of("bits", bits_in(mode), bits);
  if (complaint.empty()) {
    complaint = complain_of("group_size", group_sizes_in(mode), group_size);
  }
  return complaint;
}

// What is wrong with the problem, or nothing.
std::string complain(const Problem& p) {
  if (p.op < 0 || p.op > MLX_QMV_OP_GATHER_QQMM) {
    return expected("op", "0 to 3", p.op);
  }
  if (p.mode < 0 || p.mode > MLX_QMV_MODE_NVFP4) {
    return expected("mode", "0 to 3", p.mode);
  }
  if (p.dtype < 0 || p.dtype > MLX_QMV_DTYPE_BFLOAT16) {
    return expected("dtype", "0 to 2", p.dtype);
  }
  if (auto complaint = complain_of_format(p.mode, p.bits, p.group_size, false);
      !complaint.empty()) {
    return complaint;
  }
  if (p.global_scale && p.mode != MLX_QMV_MODE_NVFP4) {
    return expected("global_scale", "0 in other modes than nvfp4", 1);
  }
  if (p.m < 0) {
    return expected("m", "0 or more", p.m);
  }
  if (p.n < 0) {
    return expected("n", "0 or more", p.n);
  }
  if (p.batch < 0) {
    return expected("batch", "0 or more", p.batch);
  }
  if (p.experts < 1) {
    return expected("experts", "1 or more", p.experts);
  }
  // Weights are packed and grouped along the last axis of their matrix.
  const int packed = p.transpose ? p.k : p.n;
  if (p.k <= 0 || packed % p.group_size != 0) {
    return expected(
        p.transpose ? "k" : "n",
        "a positive multiple of the group size, " +
            std::to_string(p.group_size),
        packed);
  }
  if (p.arch_generation <= 0 || p.arch_size < 'a' || p.arch_size > 'z') {
    return "the architecture must be a generation and a size, as 15 and 'd' "
           "of applegpu_g15d";
  }
  return "";
}

// What is wrong with an entry of a routing table, or nothing.
std::string complain(const Route& r) {
  if (r.mode < MLX_QMV_MODE_ANY || r.mode > MLX_QMV_MODE_NVFP4) {
    return expected("mode", "0 to 3 or -1 for any", r.mode);
  }
  if (auto complaint = complain_of_format(r.mode, r.bits, r.group_size, true);
      !complaint.empty()) {
    return complaint;
  }
  if (r.n_min > r.n_max || r.k_min > r.k_max || r.m_min > r.m_max) {
    return "a range ends before it starts";
  }
  if (!one_of(
          r.path,
          {MLX_QMV_PATH_QMV, MLX_QMV_PATH_WIDE, MLX_QMV_PATH_STREAMED})) {
    const char* name = mlx_qmv_path_name(r.path);
    return "path must be qmv, qmv_wide or qmv_streamed, found " +
        (name ? name : std::to_string(r.path));
  }
  return "";
}

} // namespace

int qmv_fail(std::string message) {
  last_error = std::move(message);
  return -1;
}

int qmv_batch_limit(int policy, int upstream) {
  return policy == MLX_QMV_POLICY_EXACT ? INT_MAX : upstream;
}

int qmv_path(
    const mlx_qmv_problem& problem,
    int policy,
    const mlx_qmv_route* routes,
    size_t route_count) {
  if (problem.m == 0 || problem.n == 0 || problem.batch == 0) {
    return MLX_QMV_PATH_NONE;
  }
  if (takes_quad(problem)) {
    return MLX_QMV_PATH_QUAD;
  }
  if (problem.m == 1 || policy == MLX_QMV_POLICY_NARROW) {
    return MLX_QMV_PATH_QMV;
  }
  for (size_t i = 0; i < route_count; i++) {
    const auto& route = routes[i];
    if (matches(route, problem) && permits(policy, route.path) &&
        can_take(problem, route.path)) {
      return route.path;
    }
  }
  if (policy == MLX_QMV_POLICY_DEFAULT) {
    return prefers_wide(problem) ? MLX_QMV_PATH_WIDE : MLX_QMV_PATH_QMV;
  }
  return can_stream(problem) ? MLX_QMV_PATH_STREAMED : MLX_QMV_PATH_QMV;
}

mlx_qmv_plan
qmv_describe(const mlx_qmv_problem& problem, int policy, int path) {
  mlx_qmv_plan plan = {};
  plan.policy = policy;
  plan.path = path;
  const std::string kernel = describe(problem, plan);
  std::strncpy(plan.kernel, kernel.c_str(), sizeof(plan.kernel) - 1);
  // A single row is its own reference, unless the batch picks the kernel.
  if (problem.m <= 1 && path != MLX_QMV_PATH_GATHER_QMM_RHS) {
    plan.identical = 1;
  }
  plan.weight_bytes =
      matrix_bytes(problem) * plan.weight_passes * problem.batch;
  return plan;
}

bool qmv_is_fast(int bits, int k) {
  // qmv_fast_k_alignment in quantized.cpp.
  const int pack_factor = bits == 3 || bits == 5 ? 8
      : bits == 6                                ? 4
                                                 : 32 / bits;
  return k % (pack_factor * (bits == 2 ? 1 : 2) * 32) == 0;
}

} // namespace mlx::core

using namespace mlx::core;

extern "C" {

const char* mlx_qmv_last_error(void) {
  return last_error.c_str();
}

int32_t mlx_qmv_policy_from_name(const char* name) {
  for (size_t i = 0; name && i < policy_names.size(); i++) {
    if (std::strcmp(name, policy_names[i]) == 0) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

const char* mlx_qmv_policy_name(int32_t policy) {
  const bool known = policy >= 0 && policy < int32_t(policy_names.size());
  return known ? policy_names[policy] : nullptr;
}

const char* mlx_qmv_path_name(int32_t path) {
  const bool known = path >= 0 && path < MLX_QMV_PATH_COUNT;
  return known ? path_names[path] : nullptr;
}

int mlx_qmv_problem_init(mlx_qmv_problem* problem, const char* architecture) {
  const std::string name = architecture ? architecture : "";
  const std::string prefix = "applegpu_g";
  const size_t digits = name.size() - std::min(name.size(), prefix.size() + 1);
  const bool shaped = name.rfind(prefix, 0) == 0 && digits >= 1 &&
      digits <= 2 &&
      std::all_of(name.end() - 1 - digits, name.end() - 1, [](char c) {
                        return '0' <= c && c <= '9';
                      });
  if (!shaped || name.back() < 'a' || name.back() > 'z') {
    return qmv_fail(
        "the architecture must be applegpu_g<generation><size>, as in "
        "applegpu_g15d, found \"" +
        name + "\"");
  }
  *problem = {};
  problem->bits = 4;
  problem->group_size = 64;
  problem->transpose = 1;
  problem->batch = 1;
  problem->experts = 1;
  problem->matrix_kernels = 1;
  problem->arch_generation = std::stoi(name.substr(prefix.size(), digits));
  problem->arch_size = name.back();
  problem->tf32 = 1;
  problem->stream = -1;
  return 0;
}

int mlx_qmv_plan_product(
    const mlx_qmv_problem* problem,
    int32_t policy,
    const mlx_qmv_route* routes,
    size_t route_count,
    mlx_qmv_plan* plan) {
  if (!mlx_qmv_policy_name(policy)) {
    return qmv_fail(
        "policy must be 0 (default), 1 (narrow), 2 (streamed) or 3 (exact), "
        "found " +
        std::to_string(policy));
  }
  if (auto complaint = complain(*problem); !complaint.empty()) {
    return qmv_fail(std::move(complaint));
  }
  if (mlx_qmv_check_routes(routes, route_count) != 0) {
    return -1;
  }
  const int path = choose_path(*problem, policy, routes, route_count);
  *plan = qmv_describe(*problem, policy, path);
  return 0;
}

int mlx_qmv_check_routes(const mlx_qmv_route* routes, size_t route_count) {
  for (size_t i = 0; i < route_count; i++) {
    if (auto complaint = complain(routes[i]); !complaint.empty()) {
      return qmv_fail("route " + std::to_string(i) + ": " + complaint);
    }
  }
  return 0;
}

} // extern "C"
