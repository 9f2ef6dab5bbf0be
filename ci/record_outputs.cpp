// Writes a line for each output of each primitive that row policies cover and
// MLX evaluates on the GPU: its description and a hash of its bytes.
// ci/outputs-without-policy.sh links it between MLX's evaluation and its Metal
// back-end (--wrap), so that it sees what upstream's tests evaluate without a
// change to either.

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "mlx/backend/gpu/eval.h"
#include "mlx/primitives.h"

namespace core = mlx::core;

extern "C" void __real__ZN3mlx4core3gpu4evalERNS0_5arrayE(core::array& array);

namespace {

bool is_covered(std::string_view name) {
  return name == "QuantizedMatmul" || name == "GatherQMM" ||
      name == "QQMatmul" || name == "GatherQQMM" || name == "Quantize" ||
      name == "Matmul" || name == "AddMM" || name == "GatherMM" ||
      name == "ScaledDotProductAttention" || name == "GatedDeltaUpdate";
}

// FNV-1a, Fowler, Noll and Vo.
std::uint64_t hash(const std::uint8_t* bytes, std::size_t count) {
  std::uint64_t value = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < count; i++) {
    value = (value ^ bytes[i]) * 0x100000001b3u;
  }
  return value;
}

std::FILE* list() {
  static std::FILE* file = [] {
    const char* path = std::getenv("RECORD_OUTPUTS");
    std::FILE* opened = path ? std::fopen(path, "a") : nullptr;
    if (!opened) {
      std::fputs("RECORD_OUTPUTS must name a file to write\n", stderr);
      std::abort();
    }
    return opened;
  }();
  return file;
}

} // namespace

extern "C" void __wrap__ZN3mlx4core3gpu4evalERNS0_5arrayE(core::array& array) {
  __real__ZN3mlx4core3gpu4evalERNS0_5arrayE(array);
  auto& primitive = array.primitive();
  if (!is_covered(primitive.name())) {
    return;
  }
  core::gpu::synchronize(primitive.stream());
  for (const auto& output : array.outputs()) {
    std::fprintf(list(), "%s", primitive.name());
    for (auto extent : output.shape()) {
      std::fprintf(list(), " %d", extent);
    }
    auto bytes = output.data<std::uint8_t>();
    std::fprintf(
        list(),
        " of %d bytes: %016" PRIx64 "\n",
        static_cast<int>(output.itemsize()),
        hash(bytes, output.nbytes()));
  }
  std::fflush(list());
}
