// Times one quantized product on the simulated device: M rows of float times an
// N x K matrix in groups of 64. Prints the kernel's name, then one line per
// evaluation: elapsed milliseconds, and milliseconds of CPU time including the
// kernel compiler's. The first evaluation loads the kernel.
//
// usage: bench-sim M N K BITS EVALUATIONS
#include <sys/resource.h>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <vector>

#include <metal_sim.h>
#include <mlx/mlx.h>

namespace mx = mlx::core;

namespace {

mx::array random_floats(int rows, int columns, std::mt19937& random) {
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> made(std::size_t(rows) * columns);
  for (auto& value : made) {
    value = values(random);
  }
  return mx::array(made.data(), {rows, columns});
}

mx::array random_words(int rows, int columns, std::mt19937& random) {
  std::vector<std::uint32_t> made(std::size_t(rows) * columns);
  for (auto& word : made) {
    word = random();
  }
  return mx::array(made.data(), {rows, columns});
}

double processor_milliseconds() {
  double seconds = 0;
  for (auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    getrusage(who, &used);
    for (auto& time : {used.ru_utime, used.ru_stime}) {
      seconds += time.tv_sec + time.tv_usec * 1e-6;
    }
  }
  return seconds * 1e3;
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: bench-sim M N K BITS EVALUATIONS\n");
    return 2;
  }
  constexpr int group = 64;
  const int m = std::atoi(argv[1]);
  const int n = std::atoi(argv[2]);
  const int k = std::atoi(argv[3]);
  const int bits = std::atoi(argv[4]);
  try {
    mx::set_default_device(mx::Device::gpu);
    std::mt19937 random(1);
    auto x = random_floats(m, k, random);
    auto w = random_words(n, k / 32 * bits, random);
    auto scales = random_floats(n, k / group, random);
    auto biases = random_floats(n, k / group, random);
    for (int i = 0; i < std::atoi(argv[5]); i++) {
      auto y = mx::quantized_matmul(x, w, scales, biases, true, group, bits);
      metal_sim_reset_counts();
      auto used = processor_milliseconds();
      auto start = std::chrono::steady_clock::now();
      y.eval();
      mx::synchronize();
      std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - start;
      used = processor_milliseconds() - used;
      if (i == 0) {
        auto* counts = metal_sim_dispatch_counts();
        std::printf("%s\n", counts);
        metal_sim_free(counts);
      }
      std::printf("%.3f\t%.3f\n", took.count(), used);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
