// Measures the host's cost of a quantized product: a chain of many tiny ones on
// the simulated device, with kernels that do nothing. Prints the evaluating
// thread's CPU time in nanoseconds per product, one line per run.
//
// usage: bench-dispatch PRODUCTS RUNS
#include <time.h>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <mlx/mlx.h>

namespace mx = mlx::core;

namespace {

double thread_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1e9 + now.tv_nsec;
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: bench-dispatch PRODUCTS RUNS\n");
    return 2;
  }
  const int products = std::atoi(argv[1]);
  const int runs = std::atoi(argv[2]);
  // Short chains: a graph of all products would measure the allocator.
  constexpr int chain = 100;
  constexpr int width = 512;
  try {
    mx::set_default_device(mx::Device::gpu);
    auto x = mx::ones({1, width});
    auto w = mx::zeros({width, width / 8}, mx::uint32);
    auto scales = mx::ones({width, width / 64});
    auto biases = mx::ones({width, width / 64});
    mx::eval(x, w, scales, biases);
    for (int run = -1; run < runs; run++) {
      double spent = 0;
      for (int done = 0; done < products; done += chain) {
        auto y = x;
        for (int i = 0; i < chain; i++) {
          y = mx::quantized_matmul(y, w, scales, biases, true, 64, 4);
        }
        const double start = thread_nanoseconds();
        y.eval();
        spent += thread_nanoseconds() - start;
      }
      // The first run loads the kernel and fills caches.
      if (run >= 0) {
        std::printf("%.1f\n", spent / products);
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
