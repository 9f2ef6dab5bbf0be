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

// As in "default, narrow, streamed or exact".
std::string known_policies() {
  std::string names;
  for (size_t i = 0; i < policy_names.size(); i++) {
    names += i == 0 ? "" : i + 1 < policy_names.size() ? ", " : " or ";
    names += policy_names[i];
  }
  return names;
}

// Policies by stream index. Indices are dense and never reused.
struct Streams {
  std::mutex mutex;
  std::vector<int8_t> policies;
};

struct Hook {
  std::shared_mutex mutex;
  mlx_row_hook function{nullptr};
  void* context{nullptr};
};

// Never destroyed: threads may evaluate while the process exits.
Streams& streams() {
  static auto* streams = new Streams;
  return *streams;
}

Hook& hook() {
  static auto* hook = new Hook;
  return *hook;
}

int of_hook(const mlx_row_problem& problem) {
  auto& h = hook();
  std::shared_lock lock(h.mutex);
  int answer = MLX_ROW_DECLINE;
  try {
    answer = h.function ? h.function(problem, h.context) : MLX_ROW_DECLINE;
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
        "[quantized_matmul] The policy hook must answer the number of one (" +
        known_policies() + ", from 0 on) or -1 to decline, found " +
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
        "[quantized_matmul] MLX_QMV_POLICY must be " + known_policies() +
        ", found \"" + name + "\"");
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
        what + " must be the number of one (" + known_policies() +
        ", from 0 on), found " + std::to_string(policy));
  }
}

int row_policy_of(const mlx_row_problem& problem) {
  int policy = row_stream_policy(problem.stream);
  if (policy == MLX_ROW_DECLINE) {
    policy = of_hook(problem);
  }
  return policy == MLX_ROW_DECLINE ? of_process() : policy;
}

int row_stream_policy(int index) {
  auto& s = streams();
  std::lock_guard lock(s.mutex);
  const bool known = index >= 0 && index < static_cast<int>(s.policies.size());
  return known ? s.policies[index] : MLX_ROW_DECLINE;
}

void set_row_stream_policy(int index, int policy) {
  auto& s = streams();
  std::lock_guard lock(s.mutex);
  if (index >= static_cast<int>(s.policies.size())) {
    s.policies.resize(index + 1, MLX_ROW_DECLINE);
  }
  s.policies[index] = policy;
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

void mlx_row_set_hook(mlx_row_hook function, void* context) {
  auto& h = hook();
  std::unique_lock lock(h.mutex);
  h.function = function;
  h.context = context;
}

} // extern "C"
