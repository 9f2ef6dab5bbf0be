#include "mlx/backend/metal/qmv_dispatch.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "mlx/backend/metal/device.h"
#include "mlx/backend/metal/qmv_fingerprint.h"
#include "mlx/utils.h"

namespace mlx::core {

namespace {

constexpr const char* known_policies = "default, narrow, streamed or exact";

bool is_policy(int policy) {
  return mlx_qmv_policy_name(policy) != nullptr;
}

///////////////////////////////////////////////////////////////////////////////
// Who decides: the stream, the hook, the process
///////////////////////////////////////////////////////////////////////////////

// Policies by stream index, written once each and read without a lock. Indices
// are dense and never reused, so the table only grows: segment i, of 2^i
// entries, starts at index 2^i - 1.
class StreamPolicies {
 public:
  void set(int index, int policy) {
    auto [segment, offset] = locate(index);
    auto* entries = segments_[segment].load(std::memory_order_acquire);
    if (!entries) {
      auto* fresh = new std::atomic<int8_t>[size_t(1) << segment]();
      if (segments_[segment].compare_exchange_strong(entries, fresh)) {
        entries = fresh;
      } else {
        delete[] fresh;
      }
    }
    entries[offset].store(policy - MLX_QMV_DECLINE, std::memory_order_release);
  }

  int get(int index) const {
    if (index < 0) {
      return MLX_QMV_DECLINE;
    }
    auto [segment, offset] = locate(index);
    auto* entries = segments_[segment].load(std::memory_order_acquire);
    return MLX_QMV_DECLINE +
        (entries ? entries[offset].load(std::memory_order_acquire) : 0);
  }

 private:
  static std::pair<int, size_t> locate(int index) {
    const auto position = static_cast<uint32_t>(index) + 1;
    const int segment = std::bit_width(position) - 1;
    return {segment, position - (uint32_t(1) << segment)};
  }

  std::array<std::atomic<std::atomic<int8_t>*>, 32> segments_{};
};

struct Hook {
  std::atomic<bool> present{false};
  std::shared_mutex mutex;
  mlx_qmv_hook function{nullptr};
  void* context{nullptr};
};

struct Routes {
  std::atomic<bool> present{false};
  std::shared_mutex mutex;
  std::vector<mlx_qmv_route> entries;
};

// Never destroyed: threads may evaluate while the process exits.
StreamPolicies& stream_policies() {
  static auto* policies = new StreamPolicies;
  return *policies;
}

Hook& hook() {
  static auto* hook = new Hook;
  return *hook;
}

Routes& routes() {
  static auto* routes = new Routes;
  return *routes;
}

int process_policy() {
  static const std::string name = [] {
    const char* value = std::getenv("MLX_QMV_POLICY");
    return std::string(value ? value : "default");
  }();
  static const int policy = mlx_qmv_policy_from_name(name.c_str());
  if (!is_policy(policy)) {
    throw std::invalid_argument(
        "[quantized_matmul] MLX_QMV_POLICY must be " +
        std::string(known_policies) + ", found \"" + name + "\"");
  }
  return policy;
}

int ask_hook(const mlx_qmv_problem& problem) {
  auto& h = hook();
  if (!h.present.load(std::memory_order_acquire)) {
    return MLX_QMV_DECLINE;
  }
  std::shared_lock lock(h.mutex);
  if (!h.function) {
    return MLX_QMV_DECLINE;
  }
  int answer = MLX_QMV_DECLINE;
  try {
    answer = h.function(problem, h.context);
  } catch (const std::exception& e) {
    throw std::runtime_error(
        std::string("[quantized_matmul] The policy hook failed: ") + e.what());
  } catch (...) {
    throw std::runtime_error(
        "[quantized_matmul] The policy hook failed with an exception of a "
        "foreign type");
  }
  if (answer != MLX_QMV_DECLINE && !is_policy(answer)) {
    std::ostringstream msg;
    msg << "[quantized_matmul] The policy hook must answer 0 to 3 ("
        << known_policies << ") or " << MLX_QMV_DECLINE << " to decline, found "
        << answer;
    throw std::runtime_error(msg.str());
  }
  return answer;
}

int policy_of(const mlx_qmv_problem& problem) {
  int policy = stream_policies().get(problem.stream);
  if (policy == MLX_QMV_DECLINE) {
    policy = ask_hook(problem);
  }
  return policy == MLX_QMV_DECLINE ? process_policy() : policy;
}

template <typename F>
auto with_routes(F f) {
  auto& r = routes();
  if (!r.present.load(std::memory_order_acquire)) {
    return f(static_cast<const mlx_qmv_route*>(nullptr), size_t(0));
  }
  std::shared_lock lock(r.mutex);
  return f(r.entries.data(), r.entries.size());
}

///////////////////////////////////////////////////////////////////////////////
// From a primitive to a problem
///////////////////////////////////////////////////////////////////////////////

int dtype_of(const array& x) {
  switch (x.dtype()) {
    case float16:
      return MLX_QMV_DTYPE_FLOAT16;
    case bfloat16:
      return MLX_QMV_DTYPE_BFLOAT16;
    default:
      return MLX_QMV_DTYPE_FLOAT32;
  }
}

void set_device(mlx_qmv_problem& problem) {
  auto& d = metal::device(Device::gpu);
  problem.arch_generation = d.get_architecture_gen();
  problem.arch_size = d.get_architecture().back();
  problem.nax = metal::is_nax_available();
  problem.tf32 = env::enable_tf32();
}

int count_matrices(const array& w) {
  return w.size() / w.shape(-1) / w.shape(-2);
}

void set_primitive(
    mlx_qmv_problem& problem,
    const QuantizedMatmul& primitive,
    const std::vector<array>& inputs) {
  auto [group_size, bits, mode, transpose] = primitive.state();
  problem.op = MLX_QMV_OP_QUANTIZED_MATMUL;
  problem.mode = static_cast<int32_t>(mode);
  problem.bits = bits;
  problem.group_size = group_size;
  problem.transpose = transpose;
  problem.experts = 1;
  problem.matrix_kernels = 1;
}

void set_primitive(
    mlx_qmv_problem& problem,
    const GatherQMM& primitive,
    const std::vector<array>& inputs) {
  auto [group_size, bits, mode, transpose, left_sorted, right_sorted] =
      primitive.state();
  problem.op = MLX_QMV_OP_GATHER_QMM;
  problem.mode = static_cast<int32_t>(mode);
  problem.bits = bits;
  problem.group_size = group_size;
  problem.transpose = transpose;
  problem.experts = count_matrices(inputs[1]);
  problem.right_sorted = right_sorted;
  problem.global_scale = mode == QuantizationMode::Nvfp4 && inputs.size() == 6;
  problem.matrix_kernels = 1;
}

// The primitives that quantize x have matrix kernels for nvfp4 weights that
// come quantized, with global scales, and bfloat16 only.
void set_quantizing_primitive(
    mlx_qmv_problem& problem,
    QuantizationMode mode,
    int group_size,
    int bits,
    const array& w,
    bool global_scale,
    int k_alignment) {
  problem.mode = static_cast<int32_t>(mode);
  problem.bits = bits;
  problem.group_size = group_size;
  problem.transpose = 1;
  problem.global_scale = global_scale;
  problem.matrix_kernels = global_scale && w.dtype() == uint32 &&
      problem.dtype == MLX_QMV_DTYPE_BFLOAT16 && problem.k % k_alignment == 0;
}

void set_primitive(
    mlx_qmv_problem& problem,
    const QQMatmul& primitive,
    const std::vector<array>& inputs) {
  auto [group_size, bits, mode] = primitive.state();
  const array& w = inputs[1];
  const size_t unscaled = w.dtype() == uint32 ? 3 : 2;
  problem.op = MLX_QMV_OP_QQ_MATMUL;
  problem.experts = 1;
  set_quantizing_primitive(
      problem, mode, group_size, bits, w, inputs.size() > unscaled, 32);
  problem.matrix_kernels &= w.ndim() == 2;
}

void set_primitive(
    mlx_qmv_problem& problem,
    const GatherQQMM& primitive,
    const std::vector<array>& inputs) {
  auto [group_size, bits, mode, left_sorted, right_sorted] = primitive.state();
  const array& w = inputs[1];
  const size_t unscaled = w.dtype() == uint32 ? 5 : 4;
  problem.op = MLX_QMV_OP_GATHER_QQMM;
  problem.experts = count_matrices(w);
  problem.right_sorted = right_sorted;
  set_quantizing_primitive(
      problem,
      mode,
      group_size,
      bits,
      w,
      inputs.size() > unscaled,
      problem.nax ? 64 : 32);
  problem.matrix_kernels &= w.ndim() == 3;
}

///////////////////////////////////////////////////////////////////////////////
// Counters
///////////////////////////////////////////////////////////////////////////////

constexpr std::array kernel_functions = {
    "qmv_quad",
    "qmv_fast",
    "qmv",
    "qmv_wide",
    "qmv_streamed_fast",
    "qmv_streamed",
    "qvm",
    "qvm_split_k",
    "qmm_t",
    "qmm_n",
    "qmm_t_splitk",
    "qmm_t_nax",
    "qmm_n_nax",
    "gather_qmv_fast",
    "gather_qmv",
    "gather_qvm",
    "gather_qmm_t",
    "gather_qmm_n",
    "gather_qmm_t_nax",
    "gather_qmm_n_nax",
    "gather_qmm_rhs",
    "gather_qmm_rhs_nax",
    "quantize",
    "dequantize",
    "quantize_dequantize",
    "other"};

std::array<std::atomic<uint64_t>, kernel_functions.size()> dispatches{};

thread_local std::string last_kernel;

} // namespace

int QmvCall::path() const {
  return with_routes([&](const mlx_qmv_route* entries, size_t count) {
    return qmv_path(problem, policy, entries, count);
  });
}

template <typename Primitive>
QmvCall qmv_call(
    Primitive& primitive,
    const std::vector<array>& inputs,
    const array& x,
    const array& out,
    int M,
    int& batch_limit) {
  qmv_check_kernels();
  mlx_qmv_problem problem = {};
  set_device(problem);
  problem.dtype = dtype_of(x);
  problem.m = M;
  problem.n = out.shape(-1);
  problem.k = x.shape(-1);
  problem.batch = out.size() == 0 ? 0 : out.size() / M / problem.n;
  problem.batch_limit = batch_limit;
  problem.stream = primitive.stream().index;
  set_primitive(problem, primitive, inputs);
  const int policy = policy_of(problem);
  batch_limit = qmv_batch_limit(policy, batch_limit);
  return {problem, policy};
}

#define INSTANTIATE_QMV_CALL(Primitive) \
  template QmvCall qmv_call(            \
      Primitive&,                       \
      const std::vector<array>&,        \
      const array&,                     \
      const array&,                     \
      int,                              \
      int&);
INSTANTIATE_QMV_CALL(QuantizedMatmul)
INSTANTIATE_QMV_CALL(GatherQMM)
INSTANTIATE_QMV_CALL(QQMatmul)
INSTANTIATE_QMV_CALL(GatherQQMM)
#undef INSTANTIATE_QMV_CALL

void qmv_count(const std::string& function, const std::string& name) {
  size_t i = 0;
  while (i + 1 < kernel_functions.size() && function != kernel_functions[i]) {
    i++;
  }
  dispatches[i].fetch_add(1, std::memory_order_relaxed);
  last_kernel = name;
}

Stream new_policy_stream(int policy) {
  if (!is_policy(policy)) {
    std::ostringstream msg;
    msg << "[new_policy_stream] The policy must be 0 to 3 (" << known_policies
        << "), found " << policy;
    throw std::invalid_argument(msg.str());
  }
  auto s = new_stream(Device::gpu);
  stream_policies().set(s.index, policy);
  return s;
}

int qmv_stream_policy(Stream s) {
  return stream_policies().get(s.index);
}

} // namespace mlx::core

using namespace mlx::core;

namespace {

// Runs the body of a C function; an exception becomes its error.
template <typename F>
int guarded(F body) {
  try {
    body();
    return 0;
  } catch (const std::exception& e) {
    return qmv_fail(e.what());
  } catch (...) {
    return qmv_fail("an exception of a foreign type");
  }
}

} // namespace

extern "C" {

int mlx_qmv_new_stream(int32_t policy, int32_t* index) {
  return guarded([&] { *index = new_policy_stream(policy).index; });
}

int mlx_qmv_stream_policy(int32_t index, int32_t* policy) {
  return guarded([&] {
    const auto count = get_streams().size();
    if (index < 0 || static_cast<size_t>(index) >= count) {
      throw std::invalid_argument(
          "there is no stream " + std::to_string(index) +
          ": this process has made " + std::to_string(count));
    }
    *policy = stream_policies().get(index);
  });
}

int mlx_qmv_process_policy(int32_t* policy) {
  return guarded([&] { *policy = process_policy(); });
}

void mlx_qmv_set_hook(mlx_qmv_hook function, void* context) {
  auto& h = hook();
  std::unique_lock lock(h.mutex);
  h.function = function;
  h.context = context;
  h.present.store(function != nullptr, std::memory_order_release);
}

int mlx_qmv_set_routes(const mlx_qmv_route* entries, size_t route_count) {
  if (mlx_qmv_check_routes(entries, route_count) != 0) {
    return -1;
  }
  return guarded([&] {
    std::vector<mlx_qmv_route> fresh(entries, entries + route_count);
    auto& r = routes();
    std::unique_lock lock(r.mutex);
    r.entries = std::move(fresh);
    r.present.store(route_count > 0, std::memory_order_release);
  });
}

int mlx_qmv_plan_here(const mlx_qmv_problem* problem, mlx_qmv_plan* plan) {
  int status = 0;
  const int failed = guarded([&] {
    auto here = *problem;
    set_device(here);
    const int policy = policy_of(here);
    status = with_routes([&](const mlx_qmv_route* entries, size_t count) {
      return mlx_qmv_plan_product(&here, policy, entries, count, plan);
    });
  });
  return failed ? failed : status;
}

size_t mlx_qmv_stats(mlx_qmv_stat* stats, size_t capacity) {
  for (size_t i = 0; i < std::min(capacity, kernel_functions.size()); i++) {
    stats[i] = {
        kernel_functions[i], dispatches[i].load(std::memory_order_relaxed)};
  }
  return kernel_functions.size();
}

void mlx_qmv_reset_stats(void) {
  for (auto& count : dispatches) {
    count.store(0, std::memory_order_relaxed);
  }
}

const char* mlx_qmv_last_kernel(void) {
  return last_kernel.c_str();
}

} // extern "C"
