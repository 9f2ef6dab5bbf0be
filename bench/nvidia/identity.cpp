// Checks whether each row of a block has the bits that it has alone.
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

// Outputs in whole threadgroups, in a partial one, and fewer than one
// threadgroup; K in whole blocks and with a tail.
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
    return sign; // inputs are never subnormal
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

// The value of a byte of fp_quantized.h: sign, 4 bits of exponent and 3 of
// mantissa, or only an exponent.
float widen_e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15, rest = code & 7;
  const float size =
      exponent ? std::ldexp(8 + rest, exponent - 10) : std::ldexp(rest, -9);
  return code & 0x80 ? -size : size;
}

float widen_e8m0(uint8_t code) {
  return std::ldexp(1.0f, code - 127);
}

// Values in a kernel's type.
struct Values {
  std::vector<unsigned char> bytes;
  std::vector<float> floats;

  Values(const std::vector<uint8_t>& codes, float (*widen)(uint8_t))
      : bytes(codes) {
    for (const auto code : codes) {
      floats.push_back(widen(code));
    }
  }
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

constexpr int most_rows = 17; // so that each row of 1 to 16 has a row after it
constexpr unsigned seeds = 3;

struct Problem {
  Shape shape;
  std::vector<uint32_t> w;
  // In the fp modes `biases` is one float, the global scale.
  Values scales, biases, x;
};

constexpr float fp_most = 448.0f * 6.0f; // the divisor of that scale

Problem draw_fp(const Kernel& kernel, Shape shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(most_rows * shape.k);
  for (auto& value : x) {
    value = normal(random);
  }
  std::vector<uint32_t> w(int64_t(shape.n) * shape.k * kernel.bits / 32);
  for (auto& word : w) {
    word = random();
    if (kernel.bits == 8) { // any value except the NaNs (0x7f, 0xff)
      for (int i = 0; i < 32; i += 8) {
        if ((word >> i & 0x7f) == 0x7f) {
          word ^= 1u << i;
        }
      }
    }
  }
  // Scales of at most 1; in E4M3, any such value.
  const bool e4m3 = kernel.group_size == 16;
  std::vector<uint8_t> scales(shape.n * (shape.k / kernel.group_size));
  for (auto& code : scales) {
    code = e4m3 ? random() % 0x39 : 120 + random() % 8;
  }
  return {
      shape,
      w,
      {scales, e4m3 ? widen_e4m3 : widen_e8m0},
      {"float", {fp_most / 3 * (1 + seed)}},
      {kernel.type, x}};
}

Problem draw(const Kernel& kernel, Shape shape, unsigned seed) {
  if (kernel.is_fp()) {
    return draw_fp(kernel, shape, seed);
  }
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

double widen_weight(const Kernel& kernel, unsigned code) {
  if (!kernel.is_fp()) {
    return code;
  }
  if (kernel.bits == 8) {
    return widen_e4m3(code);
  }
  constexpr double sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -sizes[code & 7] : sizes[code & 7];
}

// The largest error of row `m` compared with float64, relative to the sum of
// the terms' magnitudes.
double error_of(
    const Kernel& kernel,
    const Problem& problem,
    int m,
    const std::vector<float>& row) {
  double worst = 0;
  const double of_matrix =
      kernel.mode != "nvfp4_hgs" ? 1 : problem.biases.floats[0] / fp_most;
  for (int i = 0; i < problem.shape.n; i++) {
    double sum = 0, size = 0;
    for (int j = 0; j < problem.shape.k; j++) {
      const int64_t bit = (int64_t(i) * problem.shape.k + j) * kernel.bits;
      uint64_t word = problem.w[bit / 32];
      if (bit / 32 + 1 < int64_t(problem.w.size())) {
        word |= uint64_t(problem.w[bit / 32 + 1]) << 32;
      }
      const double q = widen_weight(
          kernel, unsigned(word >> bit % 32 & ((1u << kernel.bits) - 1)));
      const int group =
          i * (problem.shape.k / kernel.group_size) + j / kernel.group_size;
      const double x = problem.x.floats[m * problem.shape.k + j];
      const double scale = problem.scales.floats[group] * of_matrix;
      const double bias = kernel.is_fp() ? 0 : problem.biases.floats[group];
      sum += x * (q * scale + bias);
      size += std::abs(x) * (std::abs(q * scale) + std::abs(bias));
    }
    const double error = std::abs(row[i] - sum) / size;
    worst = error <= worst ? worst : error; // keeps NaN
  }
  return worst;
}

// Row `m` of a result.
std::vector<float> row_of(
    const Kernel& kernel,
    const std::vector<unsigned char>& result,
    int m,
    int n) {
  std::vector<float> row(n);
  for (int i = 0; i < n; i++) {
    const size_t at = size_t(m) * n + i;
    if (kernel.type == "float") {
      std::memcpy(&row[i], &result[at * 4], 4);
    } else {
      uint16_t bits;
      std::memcpy(&bits, &result[at * 2], 2);
      row[i] = widen(bits, kernel.type == "half");
    }
  }
  return row;
}

struct Tally {
  long products = 0, outputs = 0, differing = 0, overrun = 0;
  double error = 0;
};
// Kernels by label and tile, because programs also contain MLX's own tiles.
using Tallies = std::map<std::pair<std::string, int>, Tally>;

class Runner {
 public:
  Runner(const Device& device, Modules& modules)
      : device_(device), modules_(modules) {}

  // Compares all tiles of one program for one problem.
  void run(
      const std::vector<const Kernel*>& program,
      const Problem& problem,
      Tallies& tallies) {
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

    // M = 1, row by row, with the kernel that the dispatch uses.
    const bool partial = first.fast && n % 8 != 0;
    alone.set(0xff, device_.stream());
    for (const auto* kernel : program) {
      if (kernel->tile == (partial ? one_row_partial : one_row) &&
          kernel->label != "batched") {
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
    const double error =
        error_of(first, problem, 0, row_of(first, expected, 0, n));

    // Memory past the last row must not change.
    const Memory together(most_rows * row);
    for (const auto* kernel : program) {
      if (kernel->tile == one_row || kernel->tile == one_row_partial) {
        continue;
      }
      auto& tally = tallies[{kernel->label, kernel->tile}];
      for (int rows = 1; rows < most_rows; rows++) {
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
        double worst = error;
        if (kernel->label == "wide") {
          // It has its own bits, so only the error shows whether it works.
          const int last = rows - 1;
          worst =
              error_of(*kernel, problem, last, row_of(*kernel, found, last, n));
        }
        tally.error = worst <= tally.error ? tally.error : worst;
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
         "differing,overrun,error,mode\n";
  Runner runner(device, modules);
  std::map<std::string, Tally> totals;
  for (const auto& [file, program] : programs) {
    const auto& kernel = *program.front();
    for (const auto& shape : shapes(kernel)) {
      Tallies tallies;
      for (unsigned seed = 1; seed <= seeds; seed++) {
        runner.run(program, draw(kernel, shape, seed), tallies);
      }
      for (const auto& [of, tally] : tallies) {
        const auto& [label, tile] = of;
        out << label << ',' << kernel.type << ',' << kernel.group_size << ','
            << kernel.bits << ',' << (kernel.fast ? "qmv_fast" : "qmv") << ",\""
            << shape.what << "\"," << shape.n << ',' << shape.k << ',' << tile
            << ',' << tally.products << ',' << tally.outputs << ','
            << tally.differing << ',' << tally.overrun << ',' << tally.error
            << ',' << kernel.mode << '\n';
        auto& total = totals[label];
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
              << " bytes past the last row, error of "
              << (label == "wide" ? "the last row" : "M = 1") << " at most "
              << total.error << std::endl;
  }
}

} // namespace qmv
