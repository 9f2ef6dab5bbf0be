#include "bridge-testing/src/faults.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/primitives.h"

#ifdef MLX_OVERLAY_POLICIES
#include "mlx/row_policy.h"
#endif

namespace mlx_overlay::testing {

namespace {

namespace core = mlx::core;

// Gives its output memory, then fails where kernels run: MLX has marked the
// output evaluated by then.
class Fails : public core::Primitive {
 public:
  using core::Primitive::Primitive;

  void eval_cpu(
      const std::vector<core::array>&,
      std::vector<core::array>& outputs) override {
    auto& out = outputs.at(0);
    out.set_data(core::allocator::malloc(out.nbytes()));
    // When MLX gives this memory to a smaller output later, the simulated
    // device must not take what is behind that for a hole.
    std::memset(out.data<char>(), 0x5a, out.nbytes());
    core::cpu::get_command_encoder(stream()).dispatch(
        [] { throw std::runtime_error("failed when run"); });
  }

  void eval_gpu(const std::vector<core::array>&, std::vector<core::array>&)
      override {
    throw std::runtime_error("failed when scheduled");
  }

  DEFINE_NAME(Fails);
};

} // namespace

void throw_int() {
  throw 42;
}

void throw_text(rust::Str text) {
  throw std::runtime_error(std::string(text));
}

bool memory_is_owned(const Array& array) {
  const auto memory = array.get().data_shared_ptr();
  if (!memory) {
    throw std::logic_error("mlx-overlay: the array is not evaluated");
  }
  return memory->is_owned();
}

std::unique_ptr<Array> fails_when_run(const Array& input, RawStream stream) {
  auto device =
      stream.device == DeviceKind::Cpu ? core::Device::cpu : core::Device::gpu;
  const auto& like = input.get();
  return std::make_unique<Array>(core::array(
      like.shape(),
      like.dtype(),
      std::make_shared<Fails>(core::Stream(stream.index, device)),
      {like}));
}

#ifdef MLX_OVERLAY_POLICIES

void hook_answers(std::int32_t kind, std::int32_t rows) {
  static mlx_row_policy given;
  // When this returns, no call of the former hook is running.
  mlx_row_set_hook(nullptr, nullptr);
  given = {kind, rows};
  mlx_row_set_hook(
      [](mlx_row_problem, void* context) {
        return *static_cast<mlx_row_policy*>(context);
      },
      &given);
}

void hook_throws() {
  mlx_row_set_hook(
      [](mlx_row_problem, void*) -> mlx_row_policy {
        throw std::runtime_error("no idea");
      },
      nullptr);
}

void hook_is_gone() {
  mlx_row_set_hook(nullptr, nullptr);
}

#else

void hook_answers(std::int32_t, std::int32_t) {
  throw std::logic_error("mlx-overlay: the linked MLX has no policies");
}

void hook_throws() {
  hook_answers(0, 0);
}

void hook_is_gone() {
  hook_answers(0, 0);
}

#endif

} // namespace mlx_overlay::testing
