// Whether each row of several has the bits that it has alone.
#include <cmath>
#include <cstring>
#include <iostream>
#include <random>

#include "device.h"

namespace qmv {

namespace {

struct Shape {
  const char* what;
  int n, k;
};

// Rows of the result in whole threadgroups, in parts of one, and fewer than one
// threadgroup has; blocks of K whole and not.
std::vector<Shape> shapes(const Kernel& kernel) {
  const int g = kernel.group_size;
  if (kernel.fast) {
    const int k = kernel.bits == 1 ? 4096 : kernel.bits >= 6 ? 768 : 1024;
    return {{"aligned", 72, k}, {"partial rows", 69, k}, {"few rows", 5, k}};
  }
  return {
      {"whole blocks", 72, 1024},
      {"tail", 72, 1024 + g},
      {"long tail", 72, 2048 - g},
      {"partial rows, tail", 69, 1024 + g},
      {"few rows, tail", 5, 1024 + g}};
}

uint16_t narrow(float value, bool is_half) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (!is_half) {
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
  const uint32_t sign = bits >> 16 & 0x8000;
  const int exponent = int(bits >> 23 & 0xff) - 112;
  if (exponent <= 0 || exponent >= 31) {
    return sign; // inputs are drawn from the normal numbers
  }
  const uint32_t rounded = (bits & 0x7fffff) + 0xfff + (bits >> 13 & 1);
  return sign + (exponent << 10) + (rounded >> 13);
}

float widen(uint16_t value, bool is_half) {
  uint32_t bits = uint32_t(value) << 16;
  if (is_half) {
    const int exponent = value >> 10 & 31;
    if (exponent == 0) {
      const float tiny = (value & 0x3ff) * 0x1p-24f;
      return value & 0x8000 ? -tiny : tiny;
    }
    bits = uint32_t(value & 0x8000) << 16 | uint32_t(exponent + 112) << 23 |
        uint32_t(value & 0x3ff) << 13;
  }
  float result;
  std::memcpy(&result, &bits, 4);
  return result;
}

// Values in the type of a kernel.
struct Values {
  std::vector<unsigned char> bytes;
  std::vector<float> floats;

  Values(const std::string& type, const std::vector<float>& drawn) {
    for (const float value : drawn) {
      if (type == "float") {
        append(value);
        floats.push_back(value);
      } else {
        const auto bits = narrow(value, type == "half");
        append(bits);
        floats.push_back(widen(bits, type == "half"));
      }
    }
  }
  template <class T>
  void append(T value) {
    const auto* from = reinterpret_cast<const unsigned char*>(&value);
    bytes.insert(bytes.end(), from, from + sizeof value);
  }
};

constexpr int most_rows = 17;

struct Problem {
  Shape shape;
  std::vector<uint32_t> w;
  Values scales, biases, x;
};

Problem draw(const Kernel& kernel, Shape shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  auto floats = [&](int count, float scale, float offset) {
    std::vector<float> values(count);
    for (auto& value : values) {
      value = normal(random) * scale + offset;
    }
    return values;
  };
  const int groups = shape.n * (shape.k / kernel.group_size);
  std::vector<uint32_t> w(int64_t(shape.n) * shape.k * kernel.bits / 32);
  for (auto& word : w) {
    word = random();
  }
  return {
      shape,
      w,
      {kernel.type, floats(groups, 0.05f, 0.2f)},
      {kernel.type, floats(groups, 0.3f, -0.5f)},
      {kernel.type, floats(most_rows * shape.k, 1, 0)}};
}

// The largest error of the first row against float64, relative to the sum of
// the terms' sizes.
double error_of(
    const Kernel& kernel,
    const Problem& problem,
    const std::vector<float>& row) {
  double worst = 0;
  for (int i = 0; i < problem.shape.n; i++) {
    double sum = 0, size = 0;
    for (int j = 0; j < problem.shape.k; j++) {
      const int64_t bit = (int64_t(i) * problem.shape.k + j) * kernel.bits;
      uint64_t word = problem.w[bit / 32];
      if (bit / 32 + 1 < int64_t(problem.w.size())) {
        word |= uint64_t(problem.w[bit / 32 + 1]) << 32;
      }
      const double q = word >> bit % 32 & ((1u << kernel.bits) - 1);
      const int group =
          i * (problem.shape.k / kernel.group_size) + j / kernel.group_size;
      const double x = problem.x.floats[j];
      sum +=
          x * (q * problem.scales.floats[group] + problem.biases.floats[group]);
      size += std::abs(x) *
          (q * std::abs(problem.scales.floats[group]) +
           std::abs(problem.biases.floats[group]));
    }
    const double error = std::abs(row[i] - sum) / size;
    worst = error <= worst ? worst : error; // NaN stays
  }
  return worst;
}

struct Tally {
  long products = 0, outputs = 0, differing = 0, overrun = 0;
  double error = 0;
};

class Runner {
 public:
  Runner(const Device& device, Modules& modules)
      : device_(device), modules_(modules) {}

  // All tiles of one program with one problem.
  void run(
      const std::vector<const Kernel*>& program,
      const Problem& problem,
      std::map<int, Tally>& tallies) {
    const auto& first = *program.front();
    const size_t size = first.type == "float" ? 4 : 2;
    const auto [what, n, k] = problem.shape;
    const Memory w(problem.w), scales(problem.scales.bytes),
        biases(problem.biases.bytes), x(problem.x.bytes);
    const size_t row = n * size;
    const Memory alone(most_rows * row);
    auto operands = [&](const Memory& y, int from, int rows) {
      return Operands{
          w.at(),
          scales.at(),
          biases.at(),
          x.at(from * k * size),
          y.at(from * row),
          k,
          n,
          rows};
    };

    // M = 1, row after row, by the kernel that the dispatch takes.
    const bool partial = first.fast && n % 8 != 0;
    alone.set(0xff, device_.stream());
    for (const auto* kernel : program) {
      if (kernel->tile == (partial ? one_row_partial : one_row)) {
        for (int i = 0; i < most_rows; i++) {
          launch(
              *kernel,
              modules_.find(*kernel),
              operands(alone, i, 1),
              device_.stream());
        }
      }
    }
    device_.wait();
    const auto expected = alone.read<unsigned char>();
    std::vector<float> row0(n);
    for (int i = 0; i < n; i++) {
      if (size == 4) {
        std::memcpy(&row0[i], &expected[i * size], 4);
      } else {
        uint16_t bits;
        std::memcpy(&bits, &expected[i * size], 2);
        row0[i] = widen(bits, first.type == "half");
      }
    }
    const double error = error_of(first, problem, row0);

    for (const auto* kernel : program) {
      if (kernel->tile < 2) {
        continue;
      }
      auto& tally = tallies[kernel->tile];
      tally.error = error <= tally.error ? tally.error : error;
      const int tile = kernel->tile;
      // One tile, two of which the second has one row, and a part of one.
      for (const int rows : {tile, tile + 1, std::max(1, tile - 1), 2 * tile}) {
        // What lies past the last row must stay as it was.
        const Memory together((most_rows + 1) * row);
        together.set(0xff, device_.stream());
        launch(
            *kernel,
            modules_.find(*kernel),
            operands(together, 0, rows),
            device_.stream());
        device_.wait();
        const auto found = together.read<unsigned char>();
        for (size_t i = 0; i < rows * row; i += size) {
          tally.differing += std::memcmp(&found[i], &expected[i], size) != 0;
        }
        for (size_t i = rows * row; i < found.size(); i++) {
          tally.overrun += found[i] != 0xff;
        }
        tally.products++;
        tally.outputs += long(rows) * n;
      }
    }
  }

 private:
  const Device& device_;
  Modules& modules_;
};

} // namespace

void check_identity(const std::string& folder, std::ostream& out) {
  const Device device;
  Modules modules(folder);
  std::map<std::string, std::vector<const Kernel*>> programs;
  const auto kernels = read_manifest(folder);
  for (const auto& kernel : kernels) {
    programs[kernel.file].push_back(&kernel);
  }
  out << "label,type,group_size,bits,twin,shape,n,k,tile,products,outputs,"
         "differing,overrun,error\n";
  Runner runner(device, modules);
  std::map<std::string, Tally> totals;
  for (const auto& [file, program] : programs) {
    const auto& kernel = *program.front();
    for (const auto& shape : shapes(kernel)) {
      std::map<int, Tally> tallies;
      for (unsigned seed = 1; seed <= 2; seed++) {
        runner.run(program, draw(kernel, shape, seed), tallies);
      }
      for (const auto& [tile, tally] : tallies) {
        out << kernel.label << ',' << kernel.type << ',' << kernel.group_size
            << ',' << kernel.bits << ',' << (kernel.fast ? "qmv_fast" : "qmv")
            << ",\"" << shape.what << "\"," << shape.n << ',' << shape.k << ','
            << tile << ',' << tally.products << ',' << tally.outputs << ','
            << tally.differing << ',' << tally.overrun << ',' << tally.error
            << '\n';
        auto& total = totals[kernel.label];
        total.products += tally.products;
        total.outputs += tally.outputs;
        total.differing += tally.differing;
        total.overrun += tally.overrun;
        total.error = tally.error <= total.error ? total.error : tally.error;
      }
    }
  }
  for (const auto& [label, total] : totals) {
    std::cout << label << ": " << total.products << " products, "
              << total.outputs << " outputs, " << total.differing
              << " differing, " << total.overrun
              << " bytes past the last row, error of M = 1 at most "
              << total.error << std::endl;
  }
}

} // namespace qmv
