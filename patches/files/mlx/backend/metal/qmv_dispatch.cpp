#include "mlx/backend/metal/qmv_dispatch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>

#include "mlx/backend/metal/kernel_fingerprint.h"

namespace mlx::core {

namespace {

static_assert(int(QuantizationMode::Affine) == MLX_ROW_MODE_AFFINE);
static_assert(int(QuantizationMode::Mxfp4) == MLX_ROW_MODE_MXFP4);
static_assert(int(QuantizationMode::Mxfp8) == MLX_ROW_MODE_MXFP8);
static_assert(int(QuantizationMode::Nvfp4) == MLX_ROW_MODE_NVFP4);

struct Routes {
  std::shared_mutex mutex;
  std::vector<mlx_row_route> entries;
};

// Never destroyed: threads may evaluate while the process exits.
Routes& routes() {
  static auto* routes = new Routes;
  return *routes;
}

// Two per path, the second for its fast kernel.
std::array<std::atomic<uint64_t>, 2 * MLX_ROW_PATH_COUNT> counts{};

mlx_row_plan
decide(const mlx_row_problem& p, int batch_limit, bool matrix_kernels) {
  const auto mode = static_cast<QuantizationMode>(p.mode);
  const bool wide = !p.global_scale &&
      qmv_ask.wide(
          quantization_mode_to_string(mode), metal::device(Device::gpu));
  const bool fast = p.k % qmv_ask.fast_k_alignment(p.bits) == 0;
  const auto policy = row_policy_of(p);
  auto& r = routes();
  std::shared_lock lock(r.mutex);
  return decide_qmv(
      p,
      {batch_limit, matrix_kernels, wide, fast},
      policy,
      r.entries.data(),
      r.entries.size());
}

QmvCall
call(const mlx_row_problem& problem, int batch_limit, bool matrix_kernels) {
  check_kernels_of_build();
  const auto plan = decide(problem, batch_limit, matrix_kernels);
  counts[2 * plan.path + plan.fast].fetch_add(1, std::memory_order_relaxed);
  return {problem, plan};
}

int batch_limit_of(const mlx_row_problem& p) {
  // Without transpose, as in QuantizedMatmul and GatherQMM.
  return p.transpose ? qmv_ask.batch_limit(p.k, p.n, metal::device(Device::gpu))
                     : 4;
}

// The primitives that quantize x have matrix kernels only for quantized nvfp4
// weights with global scales, in bfloat16.
bool has_matrix_kernels(const mlx_row_problem& p) {
  const bool gather = p.op == MLX_ROW_OP_GATHER_QQMM;
  if (!gather && p.op != MLX_ROW_OP_QQ_MATMUL) {
    return true;
  }
  const int alignment = gather && metal::is_nax_available() ? 64 : 32;
  // qqmm has them only for matrices.
  return (gather || p.batch <= 1) && p.global_scale &&
      p.dtype == MLX_ROW_DTYPE_BFLOAT16 && p.k % alignment == 0;
}

} // namespace

QmvCall qmv_call(const QmvProblem& problem, int& batch_limit) {
  const auto decided = call(problem, batch_limit, true);
  batch_limit = decided.keeps_rows() ? INT_MAX : batch_limit;
  return decided;
}

QmvCall qmv_call(const QmvProblem& problem, bool& matrix_kernels) {
  const auto decided = call(problem, batch_limit_of(problem), matrix_kernels);
  matrix_kernels = matrix_kernels && !decided.keeps_rows();
  return decided;
}

} // namespace mlx::core

using namespace mlx::core;

extern "C" {

int mlx_row_set_routes(const mlx_row_route* entries, size_t route_count) {
  return row_guarded([&] {
    check_routes(entries, route_count);
    std::vector<mlx_row_route> fresh(entries, entries + route_count);
    auto& r = routes();
    std::unique_lock lock(r.mutex);
    r.entries.swap(fresh);
  });
}

int mlx_row_plan_product(const mlx_row_problem* problem, mlx_row_plan* plan) {
  return row_guarded([&] {
    check_problem(*problem);
    *plan = decide(
        *problem, batch_limit_of(*problem), has_matrix_kernels(*problem));
  });
}

int mlx_row_matrix_units(int32_t* has) {
  return row_guarded([&] { *has = metal::is_nax_available(); });
}

size_t mlx_row_counts(uint64_t* copy, size_t capacity) {
  for (size_t i = 0; i < std::min(capacity, counts.size()); i++) {
    copy[i] = counts[i].load(std::memory_order_relaxed);
  }
  return counts.size();
}

void mlx_row_reset_counts(void) {
  for (auto& count : counts) {
    count.store(0, std::memory_order_relaxed);
  }
}

} // extern "C"
