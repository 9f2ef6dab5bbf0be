#include "mlx/row_stream.h"

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

#include "mlx/backend/cuda/cuda.h"
#include "mlx/backend/metal/metal.h"
#include "mlx/primitives.h"

namespace mlx::core {

namespace {

// The primitives that policies cover (Primitive::name), as MLX_ROW_OP_* counts.
constexpr std::array<std::string_view, MLX_ROW_OP_COUNT> covered = {
    "QuantizedMatmul",
    "GatherQMM",
    "QQMatmul",
    "GatherQQMM",
    "Matmul",
    "AddMM",
    "GatherMM",
    "ScaledDotProductAttention",
    "GatedDeltaUpdate"};

// Those whose rows the CUDA back-end has no way to keep.
constexpr bool needs_metal(int op) {
  return op == MLX_ROW_OP_QQ_MATMUL || op == MLX_ROW_OP_GATHER_QQMM ||
      op == MLX_ROW_OP_GATED_DELTA;
}

constexpr const char* no_kernels =
    "this build of MLX has no kernels that keep the bits of a row: only builds "
    "with its Metal or CUDA back-end have them";

// Why the process's policy cannot be kept; empty if it can.
std::string complaint() {
  mlx_row_policy policy;
  if (mlx_row_has_kernels()) {
    return "";
  }
  if (mlx_row_process_policy(&policy) != 0) {
    return mlx_row_last_error();
  }
  return policy.kind == MLX_ROW_POLICY_DEFAULT
      ? ""
      : std::string("MLX_ROW_POLICY asks for rows that keep their bits, and ") +
          no_kernels + "; unset it, or set it to default";
}

} // namespace

void set_stream_policy(Stream s, mlx_row_policy policy) {
  check_row_policy("[set_stream_policy] the policy", policy);
  if (policy.kind != MLX_ROW_POLICY_DEFAULT) {
    if (s.device != Device::gpu) {
      throw std::invalid_argument(
          "[set_stream_policy] stream " + std::to_string(s.index) +
          " is one of the CPU, which keeps no policy but default; give it to a "
          "GPU stream");
    }
    if (!mlx_row_has_kernels()) {
      throw std::invalid_argument(
          std::string("[set_stream_policy] ") + no_kernels);
    }
  }
  set_row_stream_policy(s.index, policy);
}

Stream new_policy_stream(mlx_row_policy policy) {
  check_row_policy("[new_policy_stream] the policy", policy);
  if (policy.kind != MLX_ROW_POLICY_DEFAULT && !mlx_row_has_kernels()) {
    throw std::invalid_argument(
        std::string("[new_policy_stream] ") + no_kernels);
  }
  auto s = new_stream(Device::gpu);
  set_row_stream_policy(s.index, policy);
  return s;
}

mlx_row_policy stream_policy(Stream s) {
  return row_stream_policy(s.index);
}

void refuse_row_policy(Primitive& primitive) {
  static const std::string why = complaint();
  static const bool has_cuda = cu::is_available();
  const bool on_cuda = has_cuda && primitive.stream().device == Device::gpu;
  if (why.empty() && !on_cuda) {
    return;
  }
  for (int op = 0; op < MLX_ROW_OP_COUNT; op++) {
    if ((why.empty() && !needs_metal(op)) || covered[op] != primitive.name()) {
      continue;
    }
    std::string complaint = why;
    if (complaint.empty()) {
      mlx_row_problem problem{};
      problem.op = op;
      problem.m = 1;
      problem.stream = primitive.stream().index;
      if (row_policy_of(problem).kind == MLX_ROW_POLICY_DEFAULT) {
        return;
      }
      complaint =
          "the CUDA back-end cannot keep the bits of its rows; use the policy "
          "default for this operation";
    }
    throw std::runtime_error(
        std::string("[") + primitive.name() + "] " + complaint);
  }
}

} // namespace mlx::core

using namespace mlx::core;

namespace {

Stream stream_of(int index) {
  const auto streams = get_streams();
  for (const auto& s : streams) {
    if (s.index == index) {
      return s;
    }
  }
  throw std::invalid_argument(
      "there is no stream " + std::to_string(index) +
      ": this process has made " + std::to_string(streams.size()));
}

} // namespace

extern "C" {

int32_t mlx_row_has_kernels(void) {
  return metal::is_available() || cu::is_available();
}

int mlx_row_set_stream_policy(int32_t index, mlx_row_policy policy) {
  return row_guarded([&] { set_stream_policy(stream_of(index), policy); });
}

int mlx_row_new_stream(mlx_row_policy policy, int32_t* index) {
  return row_guarded([&] { *index = new_policy_stream(policy).index; });
}

int mlx_row_stream_policy(int32_t index, mlx_row_policy* policy) {
  return row_guarded([&] { *policy = stream_policy(stream_of(index)); });
}

} // extern "C"
