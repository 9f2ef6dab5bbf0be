// MLX itself on the simulated device: quantized products against a
// double-precision reference, the kernel that each used, and faults that arrive
// as MLX's exceptions. Arguments: the kernel expected for two rows.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <metal_sim.h>
#include <mlx/mlx.h>

namespace mx = mlx::core;

namespace {

void require(bool held, const std::string& what) {
  if (!held) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(1);
  }
}

std::string counts() {
  auto* text = metal_sim_dispatch_counts();
  std::string result = text;
  metal_sim_free(text);
  return result;
}

// Rows of 4-bit weights in groups of 64, in the layout of quantized_matmul.
void quantized_product(int m, const std::string& kernel) {
  constexpr int n = 64, k = 512, group = 64;
  std::mt19937 random(m);
  std::normal_distribution<float> normal;
  std::vector<uint32_t> w(n * k / 8);
  std::vector<float> x(m * k), scales(n * k / group), biases(scales.size());
  for (auto& word : w) {
    word = random();
  }
  for (auto* values : {&x, &scales, &biases}) {
    for (auto& value : *values) {
      value = normal(random);
    }
  }
  metal_sim_reset_counts();
  auto y = mx::quantized_matmul(
      mx::array(x.data(), {m, k}),
      mx::array(w.data(), {n, k / 8}),
      mx::array(scales.data(), {n, k / group}),
      mx::array(biases.data(), {n, k / group}),
      true,
      group,
      4);
  y.eval();
  mx::synchronize();
  require(
      counts().find(kernel) != std::string::npos,
      "expected " + kernel + " for " + std::to_string(m) + " rows, ran " +
          counts());
  for (int row = 0; row < m; row++) {
    for (int column = 0; column < n; column++) {
      double sum = 0;
      double size = 0;
      for (int i = 0; i < k; i++) {
        auto at = column * k + i;
        auto q = (w[at / 8] >> (at % 8 * 4)) & 15;
        auto weight = scales[at / group] * double(q) + biases[at / group];
        sum += x[row * k + i] * weight;
        size += std::abs(x[row * k + i] * weight);
      }
      auto got = y.data<float>()[row * n + column];
      require(
          std::abs(got - sum) <= 1e-6 * size,
          kernel + ": " + std::to_string(got) + " instead of " +
              std::to_string(sum));
    }
  }
}

// The exception's text when `source` runs on 100 elements; empty if there is
// none.
std::string custom_kernel(const std::string& name, const std::string& source) {
  auto kernel = mx::fast::metal_kernel(name, {"a"}, {"out"}, source);
  auto a = mx::full({100}, 2.0f);
  a.eval();
  try {
    auto out = kernel(
        {a},
        {{100}},
        {mx::float32},
        {100, 1, 1},
        {32, 1, 1},
        {},
        std::nullopt,
        false,
        {})[0];
    out.eval();
    mx::synchronize();
    require(out.data<float>()[99] == 3, name + " computed something else");
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

void faults_are_exceptions() {
  auto right = custom_kernel(
      "right", "uint i = thread_position_in_grid.x; out[i] = a[i] + 1;");
  require(right.empty(), right);

  auto expect = [](const std::string& text, const std::string& part) {
    require(
        text.find(part) != std::string::npos,
        "expected \"" + part + "\" in \"" + text + "\"");
  };
  expect(
      custom_kernel(
          "forgets",
          "uint i = thread_position_in_grid.x;"
          "if (i != 37) out[i] = a[i] + 1;"),
      "unwritten at byte 148 of 400");
  expect(
      custom_kernel(
          "strays",
          "uint i = thread_position_in_grid.x; out[i + 100000] = a[i];"),
      "Command buffer execution failed");
  expect(
      custom_kernel("unsound", "out[0] = no_such_name;"),
      "use of undeclared identifier 'no_such_name'");
  // One failed command buffer does not affect the next one.
  auto again = custom_kernel(
      "again", "uint i = thread_position_in_grid.x; out[i] = a[i] + 1;");
  require(again.empty(), again);
}

} // namespace

int main(int, char** argv) {
  try {
    mx::set_default_device(mx::Device::gpu);
    mx::set_cache_limit(0);
    quantized_product(1, "affine_qmv_fast_float_gs_64_b_4");
    quantized_product(2, argv[1]);
    faults_are_exceptions();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
