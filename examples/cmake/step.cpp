// Quantizes a matrix to 4 bits, and prints the difference from the original.

#include <cstdio>
#include <exception>

#include "mlx/mlx.h"

namespace mx = mlx::core;

int main() {
  try {
    mx::Device device =
        mx::metal::is_available() ? mx::Device::gpu : mx::Device::cpu;
    mx::set_default_device(device);
    auto w = mx::random::uniform({64, 256}, mx::float32, mx::random::key(1));
    auto parts = mx::quantize(w, 64, 4);
    auto back = mx::dequantize(parts[0], parts[1], parts[2], 64, 4);
    auto step = mx::max(mx::abs(parts[1]));
    auto error = mx::max(mx::abs(mx::subtract(w, back)));
    std::printf(
        "4-bit quantization is off by %.2f steps at most\n",
        mx::divide(error, step).item<float>());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "step: %s\n", error.what());
    return 1;
  }
}
