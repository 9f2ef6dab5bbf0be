// A core of MLX's own kernels under MTL_SIM_CHECK. Prints `case: fault` for
// each case that a detector stops, and nothing for the others.
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <mlx/mlx.h>

namespace mx = mlx::core;

namespace {

// Made on the host: no kernel computes the operands.
mx::array some(mx::Shape shape, mx::Dtype type = mx::float32) {
  std::size_t size = 1;
  for (auto extent : shape) {
    size *= extent;
  }
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; i++) {
    values[i] = std::sin(float(i));
  }
  return mx::array(values.data(), std::move(shape), type);
}

// Words, scales and biases in 4 bits, groups of 64.
mx::array product(int rows, int outputs, int inner) {
  std::vector<uint32_t> words(outputs * inner / 8, 0x76543210);
  return mx::quantized_matmul(
      some({rows, inner}),
      mx::array(words.data(), {outputs, inner / 8}),
      some({outputs, inner / 64}),
      some({outputs, inner / 64}),
      true,
      64,
      4);
}

const std::vector<std::pair<std::string, std::function<mx::array()>>> cases{
    {"qmv", [] { return product(1, 64, 512); }},
    {"qmv of three rows", [] { return product(3, 64, 512); }},
    {"qmv of few inputs", [] { return product(1, 32, 128); }},
    {"softmax",
     [] {
       return mx::softmax(some({3, 100}), 1);
     }},
    {"layer_norm",
     [] {
       return mx::fast::layer_norm(some({3, 100}), some({100}), some({100}), 1);
     }},
    {"rms_norm",
     [] {
       return mx::fast::rms_norm(some({3, 100}), some({100}), 1);
     }},
    {"rope",
     [] {
       return mx::fast::rope(some({1, 2, 3, 32}), 32, false, 10000.0f, 1.0f, 0);
     }},
    {"attention of one query",
     [] {
       auto keys = some({1, 2, 40, 64});
       return mx::fast::scaled_dot_product_attention(
           some({1, 2, 1, 64}), keys, keys, 0.1f);
     }},
    {"sum",
     [] {
       return mx::sum(some({3, 100}), 1);
     }},
    {"argmax",
     [] {
       return mx::argmax(some({3, 100}, mx::bfloat16), 1);
     }},
    {"sort",
     [] {
       return mx::sort(some({3, 100}), 1);
     }},
    {"cumsum",
     [] {
       return mx::cumsum(some({3, 100}), 1);
     }},
    {"gemv",
     [] {
       return mx::matmul(some({1, 100}), some({100, 70}));
     }},
    {"take",
     [] {
       int32_t rows[] = {4, 0, 4};
       return mx::take(some({5, 33}), mx::array(rows, {3}), 0);
     }},
};

} // namespace

int main() {
  mx::set_default_device(mx::Device::gpu);
  for (auto& [name, make] : cases) {
    try {
      mx::eval(make());
      mx::synchronize();
    } catch (const std::exception& error) {
      std::printf("%s: %s\n", name.c_str(), error.what());
    }
  }
}
