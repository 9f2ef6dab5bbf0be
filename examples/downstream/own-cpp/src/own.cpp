// MLX from C++, called from Rust through a C function.

#include <cmath>
#include <cstdio>
#include <exception>
#include <string>

#include "mlx/mlx.h"

namespace mx = mlx::core;

// The largest difference between a random matrix and its 4-bit quantization,
// in units of the quantization step of its group; negative on failure.
extern "C" float own_quantization_error(int rows, int columns) {
  try {
    // First set the path of the compiled kernels: the prefix may have moved
    // since MLX was built.
    if (std::string(OWN_METALLIB) != "" &&
        mx::metal::get_metallib_path().empty()) {
      mx::metal::set_metallib_path(OWN_METALLIB);
    }
    mx::Device device =
        mx::metal::is_available() ? mx::Device::gpu : mx::Device::cpu;
    auto w = mx::random::uniform(
        -1.0f, 1.0f, {rows, columns}, mx::float32, mx::random::key(1), device);
    auto parts = mx::quantize(w, 64, 4, "affine", std::nullopt, device);
    auto back = mx::dequantize(
        parts[0],
        parts[1],
        parts[2],
        64,
        4,
        "affine",
        std::nullopt,
        std::nullopt,
        device);
    auto step = mx::max(mx::abs(parts[1], device), device);
    auto error =
        mx::max(mx::abs(mx::subtract(w, back, device), device), device);
    return mx::divide(error, step, device).item<float>();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "own-cpp: %s\n", error.what());
    return -1.0f;
  }
}
