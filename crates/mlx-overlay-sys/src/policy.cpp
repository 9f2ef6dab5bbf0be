#include "mlx-overlay-sys/src/policy.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "mlx-overlay-sys/src/check.h"
#include "mlx-overlay-sys/src/convert.h"
#include "mlx-overlay-sys/src/lib.rs.h"

#ifdef MLX_OVERLAY_POLICIES
#include "mlx/row_check.h"
#include "mlx/row_policy.h"
#endif

namespace mlx_overlay {

namespace {

namespace core = mlx::core;

#ifdef MLX_OVERLAY_POLICIES

void check(int status) {
  if (status != 0) {
    throw std::runtime_error(mlx_row_last_error());
  }
}

mlx_row_policy to_mlx(RowPolicy policy) {
  return {policy.kind, policy.rows};
}

RowPolicy from_mlx(mlx_row_policy policy) {
  return {policy.kind, policy.rows};
}

RowProblem from_mlx(const mlx_row_problem& p) {
  return {
      p.op,
      p.mode,
      p.dtype,
      p.bits,
      p.group_size,
      p.transpose,
      p.m,
      p.n,
      p.k,
      p.batch,
      p.experts,
      p.right_sorted,
      p.global_scale,
      p.heads,
      p.kv_heads,
      p.keys,
      p.stream};
}

// The hook for Rust; its context is the closure. If the closure fails or
// panics, decide() throws.
mlx_row_policy ask_rust(mlx_row_problem problem, void* context) {
  auto* hook = static_cast<const PolicyHook*>(context);
  return to_mlx(hook->decide(from_mlx(problem)));
}

void release_rust(void* context) {
  retire(rust::Box<PolicyHook>::from_raw(static_cast<PolicyHook*>(context)));
}

#else

// Never reached: Rust calls has_policies() first.
[[noreturn]] void refuse() {
  throw std::logic_error("mlx-overlay: the linked MLX has no policies");
}

#endif

#ifdef MLX_OVERLAY_ROW_KERNELS

std::int32_t float_type(ElementKind kind) {
  switch (kind) {
    case ElementKind::F32:
      return MLX_ROW_DTYPE_FLOAT32;
    case ElementKind::F16:
      return MLX_ROW_DTYPE_FLOAT16;
    case ElementKind::Bf16:
      return MLX_ROW_DTYPE_BFLOAT16;
    default:
      throw std::invalid_argument(
          "mlx-overlay: x must have the type f32, f16 or bf16");
  }
}

#else

// Never reached: Rust calls has_row_kernels() first.
[[noreturn]] void refuse_dispatch() {
  throw std::logic_error("mlx-overlay: the linked MLX has no row kernels");
}

#endif

} // namespace

#ifdef MLX_OVERLAY_POLICIES

bool has_policies() {
  return true;
}

RawStream new_policy_stream(RowPolicy policy) {
  RawStream stream{DeviceKind::Gpu, -1};
  check(mlx_row_new_stream(to_mlx(policy), &stream.index));
  return stream;
}

void set_stream_policy(std::int32_t index, RowPolicy policy) {
  check(mlx_row_set_stream_policy(index, to_mlx(policy)));
}

RowPolicy stream_policy(std::int32_t index) {
  mlx_row_policy policy{MLX_ROW_DECLINE, 0};
  check(mlx_row_stream_policy(index, &policy));
  return from_mlx(policy);
}

RowPolicy process_policy() {
  mlx_row_policy policy{MLX_ROW_DECLINE, 0};
  check(mlx_row_process_policy(&policy));
  return from_mlx(policy);
}

void set_policy_hook(rust::Box<PolicyHook> hook) {
  auto* context = hook.into_raw();
  if (mlx_row_set_owned_hook(ask_rust, context, release_rust) != 0) {
    const std::string why = mlx_row_last_error();
    release_rust(context);
    throw std::runtime_error(why);
  }
}

void remove_policy_hook() {
  check(mlx_row_set_hook(nullptr, nullptr));
}

bool in_policy_hook() {
  return mlx_row_in_hook() != 0;
}

rust::Vec<RowFinding> check_operations(
    rust::Slice<const ArrayRef> arrays,
    RawStream stream) {
  std::vector<core::array> outputs;
  outputs.reserve(arrays.size());
  for (const auto& reference : arrays) {
    outputs.push_back(reference.array.get());
  }
  rust::Vec<RowFinding> findings;
  for (const auto& found : core::check_rows(outputs, to_mlx(stream))) {
    rust::Vec<std::int32_t> shape;
    std::copy(
        found.shape.begin(), found.shape.end(), std::back_inserter(shape));
    findings.push_back(RowFinding{
        found.primitive,
        std::move(shape),
        RawStream{
            found.stream.device == core::Device::cpu ? DeviceKind::Cpu
                                                     : DeviceKind::Gpu,
            found.stream.index},
        found.why,
        found.remedy});
  }
  return findings;
}

#else

bool has_policies() {
  return false;
}

RawStream new_policy_stream(RowPolicy) {
  refuse();
}

void set_stream_policy(std::int32_t, RowPolicy) {
  refuse();
}

RowPolicy stream_policy(std::int32_t) {
  refuse();
}

RowPolicy process_policy() {
  refuse();
}

void set_policy_hook(rust::Box<PolicyHook>) {
  refuse();
}

void remove_policy_hook() {
  refuse();
}

bool in_policy_hook() {
  return false;
}

rust::Vec<RowFinding> check_operations(rust::Slice<const ArrayRef>, RawStream) {
  refuse();
}

#endif

#ifdef MLX_OVERLAY_ROW_KERNELS

bool has_row_kernels() {
  return true;
}

ProductPlan plan_product(const ProductShape& product, RawStream stream) {
  check_format(product.format);
  check_indexable(product.m, product.n, product.k);
  mlx_row_problem problem = {};
  problem.op = MLX_ROW_OP_QUANTIZED_MATMUL;
  problem.mode = product.format.mode;
  problem.dtype = float_type(product.dtype);
  problem.bits = product.format.bits;
  problem.group_size = product.format.group_size;
  problem.transpose = 1;
  problem.m = product.m;
  problem.n = product.n;
  problem.k = product.k;
  problem.batch = 1;
  problem.experts = 1;
  problem.stream = stream.index;
  mlx_row_plan plan = {};
  check(mlx_row_plan_product(&problem, &plan));
  return ProductPlan{
      from_mlx(plan.policy),
      plan.path,
      plan.fast != 0,
      plan.tile,
      plan.outputs,
      plan.sharing,
      plan.identical != 0};
}

void set_routes(rust::Slice<const ProductRoute> routes) {
  std::vector<mlx_row_route> entries;
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
  check(mlx_row_set_routes(entries.data(), entries.size()));
}

bool has_matrix_units() {
  std::int32_t has = 0;
  check(mlx_row_matrix_units(&has));
  return has != 0;
}

rust::Vec<std::uint64_t> path_counts() {
  std::vector<std::uint64_t> counts(mlx_row_counts(nullptr, 0));
  mlx_row_counts(counts.data(), counts.size());
  rust::Vec<std::uint64_t> copy;
  std::copy(counts.begin(), counts.end(), std::back_inserter(copy));
  return copy;
}

void reset_path_counts() {
  mlx_row_reset_counts();
}

void record_kernels() {
  mlx_row_record_kernels();
}

rust::String recorded_kernels() {
  return mlx_row_recorded_kernels();
}

#else

bool has_row_kernels() {
  return false;
}

ProductPlan plan_product(const ProductShape&, RawStream) {
  refuse_dispatch();
}

void set_routes(rust::Slice<const ProductRoute>) {
  refuse_dispatch();
}

bool has_matrix_units() {
  refuse_dispatch();
}

rust::Vec<std::uint64_t> path_counts() {
  refuse_dispatch();
}

void reset_path_counts() {
  refuse_dispatch();
}

void record_kernels() {
  refuse_dispatch();
}

rust::String recorded_kernels() {
  refuse_dispatch();
}

#endif

} // namespace mlx_overlay
