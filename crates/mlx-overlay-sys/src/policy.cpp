#include "mlx-overlay-sys/src/policy.h"

#include <stdexcept>
#include <typeinfo>
#include <unordered_set>
#include <vector>

#include "mlx-overlay-sys/src/check.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/primitives.h"

#ifdef MLX_OVERLAY_POLICIES
#include "mlx/backend/metal/qmv_dispatch.h"
#endif

namespace mlx_overlay {

namespace {

namespace core = mlx::core;

bool is_quantized_product(const core::Primitive& primitive) {
  const auto& type = typeid(primitive);
  return type == typeid(core::QuantizedMatmul) ||
      type == typeid(core::GatherQMM) || type == typeid(core::QQMatmul) ||
      type == typeid(core::GatherQQMM);
}

#ifdef MLX_OVERLAY_POLICIES

void check(int status) {
  if (status != 0) {
    throw std::runtime_error(mlx_qmv_last_error());
  }
}

std::int32_t float_type(ElementKind kind) {
  switch (kind) {
    case ElementKind::F32:
      return MLX_QMV_DTYPE_FLOAT32;
    case ElementKind::F16:
      return MLX_QMV_DTYPE_FLOAT16;
    case ElementKind::Bf16:
      return MLX_QMV_DTYPE_BFLOAT16;
    default:
      throw std::invalid_argument("mlx-overlay: x is of f32, f16 or bf16");
  }
}

#else

// Rust asks has_policies() first, so that nobody comes here.
[[noreturn]] void refuse() {
  throw std::logic_error("mlx-overlay: the linked MLX has no policies");
}

#endif

} // namespace

rust::Vec<StrayProduct> stray_products(
    rust::Slice<const ArrayRef> arrays,
    RawStream stream) {
  auto on_stream = [&](const core::Stream& s) {
    const bool cpu = s.device == core::Device::cpu;
    return s.index == stream.index && cpu == (stream.device == DeviceKind::Cpu);
  };
  rust::Vec<StrayProduct> strays;
  std::unordered_set<std::uintptr_t> seen;
  std::vector<core::array> pending;
  for (const auto& reference : arrays) {
    pending.push_back(reference.array.get());
  }
  while (!pending.empty()) {
    const auto array = std::move(pending.back());
    pending.pop_back();
    const bool to_run = array.has_primitive() &&
        array.status() == core::array::Status::unscheduled;
    if (!to_run || !seen.insert(array.id()).second) {
      continue;
    }
    auto& primitive = array.primitive();
    if (is_quantized_product(primitive) && !on_stream(primitive.stream())) {
      rust::Vec<std::int32_t> shape;
      for (auto extent : array.shape()) {
        shape.push_back(extent);
      }
      strays.push_back(StrayProduct{
          primitive.name(), std::move(shape), primitive.stream().index});
    }
    for (const auto& input : array.inputs()) {
      pending.push_back(input);
    }
  }
  return strays;
}

#ifdef MLX_OVERLAY_POLICIES

bool has_policies() {
  return true;
}

RawStream new_policy_stream(std::int32_t policy) {
  RawStream stream{DeviceKind::Gpu, -1};
  check(mlx_qmv_new_stream(policy, &stream.index));
  return stream;
}

std::int32_t stream_policy(std::int32_t index) {
  std::int32_t policy = MLX_QMV_DECLINE;
  check(mlx_qmv_stream_policy(index, &policy));
  return policy;
}

std::int32_t process_policy() {
  std::int32_t policy = MLX_QMV_DECLINE;
  check(mlx_qmv_process_policy(&policy));
  return policy;
}

ProductPlan plan_product(const ProductShape& product, RawStream stream) {
  check_indexable(product.m, product.n, product.k);
  mlx_qmv_problem problem = {};
  problem.op = MLX_QMV_OP_QUANTIZED_MATMUL;
  // Both in the order of mlx::core::QuantizationMode.
  problem.mode = static_cast<std::int32_t>(product.format.mode);
  problem.dtype = float_type(product.dtype);
  problem.bits = product.format.bits;
  problem.group_size = product.format.group_size;
  problem.transpose = 1;
  problem.m = product.m;
  problem.n = product.n;
  problem.k = product.k;
  problem.batch = 1;
  problem.experts = 1;
  problem.matrix_kernels = 1;
  problem.stream = stream.index;
  mlx_qmv_plan plan = {};
  check(mlx_qmv_plan_here(&problem, &plan));
  return ProductPlan{
      mlx_qmv_path_name(plan.path),
      plan.kernel,
      plan.policy,
      plan.tile,
      plan.tiles,
      plan.weight_passes,
      plan.weight_bytes,
      plan.identical != 0};
}

void set_routes(rust::Slice<const ProductRoute> routes) {
  std::vector<mlx_qmv_route> entries;
  entries.reserve(routes.size());
  for (const auto& route : routes) {
    entries.push_back(
        {route.mode,
         route.bits,
         route.group_size,
         route.n_min,
         route.n_max,
         route.k_min,
         route.k_max,
         route.m_min,
         route.m_max,
         route.path});
  }
  check(mlx_qmv_set_routes(entries.data(), entries.size()));
}

rust::Vec<KernelCount> kernel_counts() {
  std::vector<mlx_qmv_stat> stats(mlx_qmv_stats(nullptr, 0));
  mlx_qmv_stats(stats.data(), stats.size());
  rust::Vec<KernelCount> counts;
  for (const auto& stat : stats) {
    if (stat.dispatches > 0) {
      counts.push_back(KernelCount{stat.kernel, stat.dispatches});
    }
  }
  return counts;
}

void reset_kernel_counts() {
  mlx_qmv_reset_stats();
}

rust::String last_kernel() {
  return mlx_qmv_last_kernel();
}

#else

bool has_policies() {
  return false;
}

RawStream new_policy_stream(std::int32_t) {
  refuse();
}

std::int32_t stream_policy(std::int32_t) {
  refuse();
}

std::int32_t process_policy() {
  refuse();
}

ProductPlan plan_product(const ProductShape&, RawStream) {
  refuse();
}

void set_routes(rust::Slice<const ProductRoute>) {
  refuse();
}

rust::Vec<KernelCount> kernel_counts() {
  refuse();
}

void reset_kernel_counts() {
  refuse();
}

rust::String last_kernel() {
  refuse();
}

#endif

} // namespace mlx_overlay
