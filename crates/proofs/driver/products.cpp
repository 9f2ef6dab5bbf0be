// Evaluates quantized products on the simulated device of one MLX build.
//
// Reads cases from standard input and answers each on standard output: one JSON
// object per line, with the fields of `Case` below, and of `Answer` in
// driver.rs.
//
// A case's rows [0, alone) are evaluated one by one; then, for every m in
// `rows`, m rows from `first` on in one product ("together"). In these products
// there are `offset` values before x in its buffer. With a global scale the
// product is qqmm's. `record` selects what is kept of each product besides the
// number of differing outputs and the kernels that ran: nothing ("counts"), its
// bits ("bits"), or bits and full dispatches ("dispatches").
//
// The settings of the device and of the policy come from the environment, so
// this needs nothing that pristine MLX lacks, except for routes: `alternative`
// selects the other arrangement of the streamed kernels.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common.h"

#if __has_include("mlx/row_policy.h")
#include "mlx/row_policy.h"
#endif

namespace {

struct Case {
  std::string mode;
  bool global_scale{};
  int bits{}, group{};
  std::string dtype;
  int n{}, k{}, batch{};
  std::uint64_t seed{};
  std::string record;
  int offset{};
  bool alternative{};
  int first{};
  int alone{};
  std::vector<int> rows;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    Case,
    mode,
    global_scale,
    bits,
    group,
    dtype,
    n,
    k,
    batch,
    seed,
    record,
    offset,
    alternative,
    first,
    alone,
    rows)

Case parse(const std::string& line) {
  const json given = json::parse(line);
  const auto c = given.get<Case>();
  if (json(c) != given) {
    throw std::invalid_argument("a field that no case has");
  }
  if (c.record != "counts" && c.record != "bits" && c.record != "dispatches") {
    throw std::invalid_argument("nothing to record is called " + c.record);
  }
  for (int m : c.rows) {
    if (m < 1 || c.first < 0 || c.first + m > c.alone) {
      throw std::invalid_argument("at most as many rows as `alone`");
    }
  }
  return c;
}

// The values of the fp modes, by the formats' definition.
double fp4_e2m1(int bits) {
  constexpr double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return bits & 8 ? -magnitudes[bits & 7] : magnitudes[bits & 7];
}

double fp8_e4m3(int bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  const double magnitude = exponent ? std::ldexp(8 + mantissa, exponent - 10)
                                    : std::ldexp(mantissa, -9);
  return bits & 128 ? -magnitude : magnitude;
}

double fp8_e8m0(int bits) {
  return std::ldexp(1.0, bits - 127);
}

// The reference for nvfp4's global scales: the largest product of a scale and a
// weight.
constexpr double largest_nvfp4 = 448.0 * 6.0;
// The largest magnitudes: of x as filled below, and of the weights.
constexpr float global_scale_x = 1.1f;
constexpr float global_scale_w = 2.3f;

struct Problem {
  Case c;
  mx::Dtype dtype;
  int m; // rows of x for each matrix
  std::vector<std::uint32_t> w;
  std::vector<float> scales, biases, x;
  std::vector<std::uint8_t> fp_scales; // instead of scales and biases
  std::vector<float> seen_x; // x as the product's own kernel reads it

  explicit Problem(const Case& of)
      : c(of), dtype(dtype_of(of.dtype)), m(of.alone) {
    Random random(c.seed);
    const std::size_t weights = std::size_t(c.batch) * c.n * c.k;
    w.resize(weights * c.bits / 32);
    for (auto& word : w) {
      word = static_cast<std::uint32_t>(random.next());
    }
    auto fill =
        [&](std::vector<float>& values, std::size_t count, float a, float b) {
          values.resize(count);
          for (auto& value : values) {
            value = rounded(random.real(a, b), dtype);
          }
        };
    if (is_affine()) {
      // Like real quantized weights: values around zero.
      const float top = static_cast<float>((1 << c.bits) - 1);
      fill(scales, weights / c.group, 0.5f / top, 1.5f / top);
      fill(biases, weights / c.group, -0.9f, -0.1f);
    } else {
      fill_fp(random, weights / c.group);
    }
    fill(x, std::size_t(c.batch) * m * c.k, -1.0f, 1.0f);
    seen_x = c.global_scale ? quantized_x() : x;
  }

  bool is_affine() const {
    return c.mode == "affine";
  }

  void fill_fp(Random& random, std::size_t groups) {
    if (c.mode == "mxfp8") {
      // Two codes of a weight are not numbers, and quantizing gives none.
      for (auto& word : w) {
        for (int shift = 0; shift < 32; shift += 8) {
          if ((word >> shift & 0x7f) == 0x7f) {
            word ^= 0x40u << shift;
          }
        }
      }
    }
    // Scales around one half; with a global scale they use their whole range.
    const auto [first, codes] = c.mode != "nvfp4" ? std::pair(122, 8)
        : c.global_scale                          ? std::pair(0x40, 0x3f)
                                                  : std::pair(0x18, 0x30);
    fp_scales.resize(groups);
    for (auto& scale : fp_scales) {
      scale = static_cast<std::uint8_t>(first + random.next() % codes);
    }
  }

  // qqmm rounds x before it multiplies, each group of a row separately.
  std::vector<float> quantized_x() const {
    const mx::array scale(global_scale_x);
    const auto parts = mx::quantize(
        mx::array(x.begin(), shape(m, c.k), dtype),
        c.group,
        c.bits,
        c.mode,
        scale,
        mx::Device::gpu);
    auto seen = mx::dequantize(
        parts[0],
        parts[1],
        std::nullopt,
        c.group,
        c.bits,
        c.mode,
        scale,
        dtype,
        mx::Device::gpu);
    mx::eval(seen);
    const auto bits = bits_of(seen);
    std::vector<float> values;
    for (auto word : bits) {
      values.push_back(static_cast<float>(value_of(word, dtype)));
    }
    return values;
  }

  mx::Shape shape(int rows, int columns) const {
    return c.batch > 1 ? mx::Shape{c.batch, rows, columns}
                       : mx::Shape{rows, columns};
  }

  // The product of rows [first, first + count) of x, of each batch.
  mx::array product(int first, int count) const {
    const int before = count > 1 ? c.offset : 0;
    std::vector<float> some(before);
    for (int b = 0; b < c.batch; b++) {
      auto start = x.begin() + (std::size_t(b) * m + first) * c.k;
      some.insert(some.end(), start, start + std::size_t(count) * c.k);
    }
    const int size = static_cast<int>(some.size());
    const mx::array flat = mx::slice(
        mx::array(some.begin(), mx::Shape{size}, dtype),
        mx::Shape{before},
        mx::Shape{size},
        mx::Device::gpu);
    const mx::array rows =
        mx::reshape(flat, shape(count, c.k), mx::Device::gpu);
    const mx::array packed(
        w.begin(), shape(c.n, c.k * c.bits / 32), mx::uint32);
    const auto groups = shape(c.n, c.k / c.group);
    if (c.global_scale) {
      return mx::qqmm(
          rows,
          packed,
          mx::array(fp_scales.begin(), groups, mx::uint8),
          c.group,
          c.bits,
          c.mode,
          mx::array(global_scale_x),
          mx::array(global_scale_w),
          mx::Device::gpu);
    }
    return mx::quantized_matmul(
        rows,
        packed,
        is_affine() ? mx::array(scales.begin(), groups, dtype)
                    : mx::array(fp_scales.begin(), groups, mx::uint8),
        is_affine() ? std::optional(mx::array(biases.begin(), groups, dtype))
                    : std::nullopt,
        true,
        c.group,
        c.bits,
        c.mode,
        mx::Device::gpu);
  }

  // The weight of a code in a group.
  double weight_of(int code, std::size_t group) const {
    if (is_affine()) {
      return double(scales[group]) * code + biases[group];
    }
    const double scale = c.mode == "nvfp4" ? fp8_e4m3(fp_scales[group])
                                           : fp8_e8m0(fp_scales[group]);
    const double global = c.global_scale ? global_scale_w / largest_nvfp4 : 1;
    return scale * global * (c.bits == 8 ? fp8_e4m3(code) : fp4_e2m1(code));
  }

  // The largest error of rows from `first` on, given as bits, compared with a
  // float64 product, relative to the sum of the magnitudes.
  double error(const std::vector<std::uint32_t>& bits, int first, int rows)
      const {
    double worst = 0;
    for (int b = 0; b < c.batch; b++) {
      for (int n = 0; n < c.n; n++) {
        const std::size_t row = std::size_t(b) * c.n + n;
        std::vector<double> weight(c.k);
        auto bytes = reinterpret_cast<const std::uint8_t*>(w.data()) +
            row * c.k * c.bits / 8;
        for (int k = 0; k < c.k; k++) {
          int q = 0;
          for (int bit = 0; bit < c.bits; bit++) {
            const int at = k * c.bits + bit;
            q |= (bytes[at / 8] >> (at % 8) & 1) << bit;
          }
          const std::size_t group = (row * c.k + k) / c.group;
          weight[k] = weight_of(q, group);
        }
        for (int r = 0; r < rows; r++) {
          double sum = 0;
          double size = 0;
          for (int k = 0; k < c.k; k++) {
            const double term =
                weight[k] * seen_x[(std::size_t(b) * m + first + r) * c.k + k];
            sum += term;
            size += std::abs(term);
          }
          const std::size_t at = (std::size_t(b) * rows + r) * c.n + n;
          const double found = value_of(bits[at], dtype);
          const double relative = std::abs(found - sum) / size;
          // A NaN is worse than any number.
          worst = std::isnan(worst) || relative <= worst ? worst : relative;
        }
      }
    }
    return worst;
  }
};

// Selects an arrangement; pristine MLX has none.
void set_route(bool alternative) {
#ifdef MLX_ROW_API
  const mlx_row_route route = {
      MLX_ROW_MODE_ANY,
      0,
      0,
      0,
      INT32_MAX,
      0,
      INT32_MAX,
      0,
      INT32_MAX,
      MLX_ROW_PATH_STREAMED_ALT};
  if (mlx_row_set_routes(&route, alternative) != 0) {
    throw std::runtime_error(mlx_row_last_error());
  }
#else
  if (alternative) {
    throw std::invalid_argument("this MLX has no arrangements");
  }
#endif
}

json answer(const Case& c) {
  set_route(c.alternative);
  const Problem problem(c);
  const int digits = problem.dtype == mx::float32 ? 8 : 4;

  metal_sim_reset_counts();
  std::vector<mx::array> rows;
  for (int r = 0; r < problem.m; r++) {
    rows.push_back(problem.product(r, 1));
  }
  mx::eval(rows);
  // Laid out as [batch, m, n], like the products of several rows.
  std::vector<std::uint32_t> alone(std::size_t(c.batch) * problem.m * c.n);
  for (int r = 0; r < problem.m; r++) {
    const auto row = bits_of(rows[r]);
    for (int b = 0; b < c.batch; b++) {
      std::copy_n(
          row.begin() + std::size_t(b) * c.n,
          c.n,
          alone.begin() + (std::size_t(b) * problem.m + r) * c.n);
    }
  }
  json answer = {
      {"alone",
       {{"kernels", json::parse(take(metal_sim_dispatch_counts()))},
        {"error", problem.error(alone, 0, problem.m)},
        {"bits", hex(alone, digits)}}},
      {"together", json::array()}};

  for (int m : c.rows) {
    auto product = problem.product(c.first, m);
    metal_sim_reset_counts();
    if (c.record == "dispatches") {
      metal_sim_trace_start();
    }
    mx::eval(product);
    const auto bits = bits_of(product);
    std::size_t differing = 0;
    for (int b = 0; b < c.batch; b++) {
      for (std::size_t i = 0; i < std::size_t(m) * c.n; i++) {
        differing += bits[std::size_t(b) * m * c.n + i] !=
            alone[(std::size_t(b) * problem.m + c.first) * c.n + i];
      }
    }
    json together = {
        {"m", m},
        {"kernels", json::parse(take(metal_sim_dispatch_counts()))},
        {"outputs", bits.size()},
        {"differing", differing},
        {"error", problem.error(bits, c.first, m)}};
    if (c.record != "counts") {
      together["bits"] = hex(bits, digits);
    }
    if (c.record == "dispatches") {
      together["dispatches"] = dispatches(take(metal_sim_trace_take()));
      metal_sim_trace_stop();
    }
    answer["together"].push_back(std::move(together));
  }
  return answer;
}

} // namespace

int main(int argc, char** argv) {
  return serve(
      argc, argv, [](const std::string& line) { return answer(parse(line)); });
}
