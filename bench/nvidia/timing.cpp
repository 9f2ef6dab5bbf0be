// Measures M rows, compared with one row of MLX's own kernel.
#include <algorithm>
#include <functional>
#include <iostream>

#include "device.h"

namespace qmv {

namespace {

constexpr int most_rows = 16;

struct Shape {
  const char* what;
  int n, k;
  int batch = 1;
};
constexpr Shape shapes[] = {
    {"head", 248320, 2560},
    {"mlp", 17408, 5120},
    {"mlp-tail", 15360, 3840},
    {"broad", 8192, 4096},
    {"square", 4096, 4096},
    {"edge", 2048, 4096},
    {"deep", 1536, 8960},
    {"narrow", 1024, 4096},
    {"batch", 4096, 4096, 2},
    {"narrow-batch", 1024, 4096, 2}};

struct Weights {
  const char* mode;
  int group_size, bits;

  bool is_fp() const {
    return mode != std::string("affine");
  }
};
constexpr Weights all_weights[] = {
    {"affine", 64, 1},
    {"affine", 64, 2},
    {"affine", 64, 3},
    {"affine", 64, 4},
    {"affine", 64, 5},
    {"affine", 64, 6},
    {"affine", 64, 8},
    {"mxfp4", 32, 4},
    {"mxfp8", 32, 8},
    {"nvfp4", 16, 4}};

struct Times {
  double median, least; // microseconds per launch
};

class Clock {
 public:
  explicit Clock(const Device& device) : device_(device) {
    QMV_CHECK(cuEventCreate(&start_, CU_EVENT_DEFAULT));
    QMV_CHECK(cuEventCreate(&end_, CU_EVENT_DEFAULT));
  }
  ~Clock() {
    cuEventDestroy(start_);
    cuEventDestroy(end_);
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  // Captures `launches` calls of `enqueue` as a graph and replays it.
  Times measure(
      int launches,
      int replays,
      const std::function<void(int, CUstream)>& enqueue) const {
    const auto stream = device_.stream();
    QMV_CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < launches; i++) {
      enqueue(i, stream);
    }
    CUgraph graph;
    QMV_CHECK(cuStreamEndCapture(stream, &graph));
    CUgraphExec executable;
    QMV_CHECK(cuGraphInstantiate(&executable, graph, 0));
    QMV_CHECK(cuGraphLaunch(executable, stream));
    std::vector<double> times;
    double spent = 0;
    // Enough replays for a median, more if they are short.
    for (int i = 0; i < 5 || (i < replays && spent < 5e4); i++) {
      QMV_CHECK(cuEventRecord(start_, stream));
      QMV_CHECK(cuGraphLaunch(executable, stream));
      QMV_CHECK(cuEventRecord(end_, stream));
      QMV_CHECK(cuEventSynchronize(end_));
      float milliseconds = 0;
      QMV_CHECK(cuEventElapsedTime(&milliseconds, start_, end_));
      spent += 1e3 * milliseconds;
      times.push_back(1e3 * milliseconds / launches);
    }
    cuGraphExecDestroy(executable);
    cuGraphDestroy(graph);
    std::sort(times.begin(), times.end());
    return {times[times.size() / 2], times.front()};
  }

 private:
  const Device& device_;
  CUevent start_ = nullptr, end_ = nullptr;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : modules_(options.get("kernels")),
        clock_(device_),
        kernels_(read_manifest(options.get("kernels"))),
        quick_(options.get("quick", "0") == "1"),
        profile_(options.get("profile", "0") == "1"),
        replays_(quick_ ? 5 : 15) {}

  void run(std::ostream& out) {
    warm_up();
    const double ceiling = read_ceiling();
    std::cout << device_.name() << ": reads at most " << ceiling / 1e3
              << " TB/s" << std::endl;
    out << "shape,n,k,bits,kernel,m,tile,rows,sharing,tiles,microseconds,least,"
           "ratio_to_m1,gigabytes_per_second,of_read_ceiling,own_order,"
           "differing,mode\n";
    std::vector<Weights> present;
    for (const auto& weights : all_weights) {
      if (find("shipped", weights, true, {one_row, 4, 0})) {
        present.push_back(weights);
      }
    }
    for (const auto& shape : shapes) {
      for (const auto& weights : present) {
        if (!profile_ || is_profiled(shape, weights)) {
          run(shape, weights, ceiling, out);
        }
      }
    }
  }

 private:
  static bool is_profiled(const Shape& shape, const Weights& weights) {
    const std::string what = shape.what;
    return (what == "head" || what == "mlp") &&
        (weights.bits == 4 || weights.bits == 8);
  }

  // As MLX's qmv_fast_k_alignment.
  static bool takes_fast(int bits, int k) {
    const int pack = bits == 3 || bits == 5 ? 8 : bits == 6 ? 4 : 32 / bits;
    return k % (pack * (bits == 2 ? 1 : 2) * 32) == 0;
  }

  struct Tile {
    int tile, rows, sharing;
  };

  // The kernel with a label, or null.
  const Kernel* find(
      const std::string& label,
      const Weights& weights,
      bool fast,
      Tile tile) const {
    for (const auto& kernel : kernels_) {
      // qmv_wide supports any K.
      if (kernel.label == label && kernel.type == "bfloat" &&
          kernel.mode == weights.mode &&
          kernel.group_size == weights.group_size &&
          kernel.bits == weights.bits &&
          (kernel.fast == fast || label == "wide") &&
          kernel.tile == tile.tile && kernel.rows == tile.rows &&
          kernel.sharing == tile.sharing) {
        return &kernel;
      }
    }
    return nullptr;
  }

  void fill_words(const Memory& memory, unsigned seed) {
    unsigned long long count = memory.bytes() / 4;
    CUdeviceptr at = memory.at();
    void* arguments[] = {&at, &count, &seed};
    run_tool("fill_words", arguments);
  }
  void fill_bfloats(const Memory& memory, unsigned seed, float bound) {
    unsigned long long count = memory.bytes() / 2;
    CUdeviceptr at = memory.at();
    void* arguments[] = {&at, &count, &seed, &bound};
    run_tool("fill_bfloats", arguments);
  }
  // Fills `count` codes from `first` on, half of them negative if `sign` is
  // set.
  void fill_codes(
      const Memory& memory,
      unsigned seed,
      unsigned first,
      unsigned count,
      bool sign) {
    unsigned long long bytes = memory.bytes();
    CUdeviceptr at = memory.at();
    unsigned sign_bit = sign ? 0x80 : 0;
    void* arguments[] = {&at, &bytes, &seed, &first, &count, &sign_bit};
    run_tool("fill_codes", arguments);
  }
  void run_tool(const char* name, void** arguments) {
    launch_tool(name, arguments);
    device_.wait();
  }
  void launch_tool(const char* name, void** arguments) {
    const int processors =
        device_.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    QMV_CHECK(cuLaunchKernel(
        modules_.find("tools.cubin", name),
        16 * processors,
        1,
        1,
        256,
        1,
        1,
        0,
        device_.stream(),
        arguments,
        nullptr));
  }

  // Raises the clocks.
  void warm_up() {
    const Memory memory(size_t(1) << 30);
    for (unsigned i = 0; i < 200; i++) {
      fill_words(memory, i);
    }
  }

  // The read rate of a kernel that only reads, in gigabytes per second.
  double read_ceiling() {
    const Memory memory(size_t(4) << 30), out(16);
    fill_words(memory, 1);
    CUdeviceptr from = memory.at(), to = out.at();
    unsigned long long count = memory.bytes() / 16;
    void* arguments[] = {&from, &count, &to};
    const auto times = clock_.measure(2, replays_, [&](int, CUstream) {
      launch_tool("read_all", arguments);
    });
    return memory.bytes() / times.median / 1e3;
  }

  void run(
      const Shape& shape,
      const Weights& of,
      double ceiling,
      std::ostream& out) {
    const int bits = of.bits;
    const size_t values = size_t(shape.batch) * shape.n * shape.k;
    const size_t weights = values * bits / 8;
    const size_t groups = values / of.group_size * (of.is_fp() ? 1 : 2);
    const size_t bytes = weights + (of.is_fp() ? 1 : 2) * groups;
    // So many copies that no weight is still in the cache when it is read
    // again.
    const size_t cache = device_.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    const int copies = std::max<int>(2, 1 + 4 * cache / bytes);
    std::vector<Memory> w, scales, biases;
    for (int i = 0; i < copies; i++) {
      if (of.is_fp()) {
        if (bits == 8) { // no NaN
          fill_codes(w.emplace_back(weights), 3 * i, 0, 0x7f, true);
        } else {
          fill_words(w.emplace_back(weights), 3 * i);
        }
        const unsigned first = of.group_size == 16 ? 1 : 120;
        const unsigned count = of.group_size == 16 ? 0x38 : 8;
        fill_codes(scales.emplace_back(groups), 3 * i + 1, first, count, false);
        biases.emplace_back(sizeof(float)); // these kernels do not read it
        continue;
      }
      fill_words(w.emplace_back(weights), 3 * i);
      fill_bfloats(scales.emplace_back(groups), 3 * i + 1, 0.01f);
      fill_bfloats(biases.emplace_back(groups), 3 * i + 2, 0.1f);
    }
    const Memory x(size_t(shape.batch) * most_rows * shape.k * 2);
    fill_bfloats(x, 99, 1);
    const Memory y(size_t(shape.batch) * most_rows * shape.n * 2);

    const bool fast = takes_fast(bits, shape.k);
    const char* label = shape.batch > 1 ? "batched" : "shipped";
    const auto* stock = find(label, of, fast, {one_row, 4, 0});
    double one = 0;
    std::vector<uint16_t> expected;
    auto measure = [&](const std::string& name, const Kernel& kernel, int m) {
      // CUDA's limit for a grid's y dimension.
      if (ceil_div(shape.n, kernel.outputs()) > 65535) {
        return;
      }
      const auto function = modules_.find(kernel);
      auto enqueue = [&](int i, CUstream stream) {
        const int c = i % copies;
        launch(
            kernel,
            function,
            {w[c].at(),
             scales[c].at(),
             biases[c].at(),
             x.at(),
             y.at(),
             shape.k,
             shape.n,
             m,
             shape.batch},
            stream);
      };
      // A profiler has its own clock, and needs one launch per kernel.
      const auto times = profile_
          ? Times{1, 1}
          : clock_.measure(2 * copies, replays_, enqueue);
      y.set(0xff, device_.stream());
      enqueue(0, device_.stream());
      device_.wait();
      auto found = y.read<uint16_t>();
      found.resize(size_t(shape.batch) * m * shape.n);
      if (kernel.tile == one_row) {
        expected = found;
      }
      long differing = 0;
      for (size_t i = 0; i < found.size(); i++) {
        differing += found[i] != expected[i];
      }
      if (m == 1 && kernel.tile == one_row) {
        one = times.median;
      }
      const int tiles = kernel.tile >= 2 ? ceil_div(m, kernel.tile) : m;
      // The weights once: the least that a product must read.
      const double speed = bytes / times.median / 1e3;
      out << shape.what << ',' << shape.n << ',' << shape.k << ',' << bits
          << ',' << name << ',' << m << ',' << std::max(1, kernel.tile) << ','
          << kernel.rows << ',' << kernel.sharing << ',' << tiles << ','
          << times.median << ',' << times.least << ',' << times.median / one
          << ',' << speed << ',' << speed / ceiling << ','
          << (kernel.label == "wide") << ',' << differing << ',' << of.mode
          << '\n';
    };
    for (int m = 1; m <= most_rows; m++) {
      if (quick_ && m > 2 && m != 8) {
        continue;
      }
      if (profile_ && (m & (m - 1)) != 0) {
        continue;
      }
      measure("qmv", *stock, m);
      if (m == 1) {
        continue;
      }
      auto planned = [&](bool alternative) {
        return plan_of(
            of.mode,
            of.group_size,
            bits,
            shape.n,
            shape.k,
            m,
            alternative,
            shape.batch);
      };
      const auto plan = planned(false), other = planned(true);
      auto measure_plan = [&](const char* name, const mlx_row_plan& p) {
        const auto* kernel =
            find(label, of, fast, {p.tile, p.outputs, p.sharing});
        if (!kernel) {
          throw std::runtime_error(
              std::string(shape.what) +
              ": the planned kernel was not compiled");
        }
        measure(name, *kernel, m);
      };
      measure_plan("streamed", plan);
      if (other.path == MLX_ROW_PATH_STREAMED_ALT) {
        measure_plan("alternative", other);
      }
      if (shape.batch > 1 || profile_) {
        continue; // no other kernels are compiled for a batch
      }
      for (const auto& arrangement : labels()) {
        for (const auto& kernel : kernels_) {
          if (kernel.label == arrangement && kernel.tile == plan.tile) {
            const Tile tile = {plan.tile, kernel.rows, kernel.sharing};
            if (const auto* found = find(arrangement, of, fast, tile)) {
              measure(arrangement, *found, m);
            }
            break;
          }
        }
      }
      // Rows for which the two caps differ, in one and two tiles.
      const bool caps_differ = m >= 6 && (m <= 8 || m == 12 || m == 16);
      for (const int cap :
           caps_differ ? std::vector<int>{5, 8} : std::vector<int>{}) {
        const int tile = ceil_div(m, ceil_div(m, cap));
        const Tile wide = {tile, of.is_fp() ? 2 : 4, 0};
        if (const auto* kernel = find("wide", of, fast, wide)) {
          measure("wide-cap-" + std::to_string(cap), *kernel, m);
        }
      }
    }
  }

  // Other arrangements of the streamed kernels.
  std::vector<std::string> labels() const {
    std::vector<std::string> labels;
    for (const auto& kernel : kernels_) {
      if (kernel.label[0] == 'r' &&
          std::find(labels.begin(), labels.end(), kernel.label) ==
              labels.end()) {
        labels.push_back(kernel.label);
      }
    }
    return labels;
  }

  Device device_;
  Modules modules_;
  Clock clock_;
  std::vector<Kernel> kernels_;
  bool quick_, profile_;
  int replays_;
};

} // namespace

void measure_times(const Options& options, std::ostream& out) {
  Bench(options).run(out);
}

} // namespace qmv
