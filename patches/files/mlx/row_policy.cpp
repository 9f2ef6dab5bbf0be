#include "mlx/row_policy.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <vector>

namespace mlx::core {

namespace {

constexpr std::array<const char*, MLX_ROW_POLICY_COUNT> policy_names = {
    "default",
    "narrow",
    "streamed",
    "exact"};

thread_local std::string last_error;

// Who decides. Stream indices are dense and never reused.
struct Deciders {
  std::shared_mutex mutex;
  std::vector<int8_t> streams;
  mlx_row_hook hook{nullptr};
  void* context{nullptr};
};

// Never destroyed: threads may evaluate while the process exits.
Deciders& deciders() {
  static auto* deciders = new Deciders;
  return *deciders;
}

int of_stream(const Deciders& d, int index) {
  const bool known = index >= 0 && index < static_cast<int>(d.streams.size());
  return known ? d.streams[index] : MLX_ROW_DECLINE;
}

int of_hook(const Deciders& d, const mlx_row_problem& problem) {
  int answer = MLX_ROW_DECLINE;
  try {
    answer = d.hook ? d.hook(problem, d.context) : MLX_ROW_DECLINE;
  } catch (const std::exception& e) {
    throw std::runtime_error(
        std::string("[quantized_matmul] The policy hook failed: ") + e.what());
  } catch (...) {
    throw std::runtime_error(
        "[quantized_matmul] The policy hook failed with an exception of a "
        "foreign type");
  }
  if (answer != MLX_ROW_DECLINE && !mlx_row_policy_name(answer)) {
    throw std::runtime_error(
        "[quantized_matmul] The policy hook must answer 0 to 3 (default, "
        "narrow, streamed or exact) or -1 to decline, found " +
        std::to_string(answer));
  }
  return answer;
}

int of_process() {
  static const std::string name = [] {
    const char* value = std::getenv("MLX_QMV_POLICY");
    return std::string(value ? value : "default");
  }();
  static const int policy = mlx_row_policy_from_name(name.c_str());
  if (policy < 0) {
    throw std::invalid_argument(
        "[quantized_matmul] MLX_QMV_POLICY must be default, narrow, streamed "
        "or exact, found \"" +
        name + "\"");
  }
  return policy;
}

} // namespace

int row_fail(std::string message) {
  last_error = std::move(message);
  return -1;
}

void check_row_policy(const std::string& what, int policy) {
  if (!mlx_row_policy_name(policy)) {
    throw std::invalid_argument(
        what +
        " must be 0 (default), 1 (narrow), 2 (streamed) or 3 (exact), found " +
        std::to_string(policy));
  }
}

int row_policy_of(const mlx_row_problem& problem) {
  auto& d = deciders();
  std::shared_lock lock(d.mutex);
  int policy = of_stream(d, problem.stream);
  if (policy == MLX_ROW_DECLINE) {
    policy = of_hook(d, problem);
  }
  return policy == MLX_ROW_DECLINE ? of_process() : policy;
}

int row_stream_policy(int index) {
  auto& d = deciders();
  std::shared_lock lock(d.mutex);
  return of_stream(d, index);
}

void set_row_stream_policy(int index, int policy) {
  auto& d = deciders();
  std::unique_lock lock(d.mutex);
  if (index >= static_cast<int>(d.streams.size())) {
    d.streams.resize(index + 1, MLX_ROW_DECLINE);
  }
  d.streams[index] = policy;
}

} // namespace mlx::core

using namespace mlx::core;

extern "C" {

const char* mlx_row_last_error(void) {
  return last_error.c_str();
}

int32_t mlx_row_policy_from_name(const char* name) {
  for (size_t i = 0; name && i < policy_names.size(); i++) {
    if (std::strcmp(name, policy_names[i]) == 0) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

const char* mlx_row_policy_name(int32_t policy) {
  const bool known = policy >= 0 && policy < MLX_ROW_POLICY_COUNT;
  return known ? policy_names[policy] : nullptr;
}

int mlx_row_process_policy(int32_t* policy) {
  return row_guarded([&] { *policy = of_process(); });
}

void mlx_row_set_hook(mlx_row_hook hook, void* context) {
  auto& d = deciders();
  std::unique_lock lock(d.mutex);
  d.hook = hook;
  d.context = context;
}

} // extern "C"
