#include "bridge-testing/src/probe.h"

#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/compile.h"
#include "mlx/export.h"
#include "mlx/fast.h"
#include "mlx/ops.h"
#include "mlx/random.h"
#include "mlx/stream.h"
#include "mlx/transforms.h"

#ifdef MLX_OVERLAY_POLICIES
#include "mlx/row_stream.h"
#endif

namespace mlx_overlay::testing {

namespace {

namespace core = mlx::core;
using core::array;

constexpr int outputs = 64;
constexpr int values = 512;

array noise(core::Shape shape, std::uint64_t seed, float scale = 1) {
  auto out = core::random::normal(
      shape, core::float32, 0, scale, core::random::key(seed));
  out.eval();
  return out;
}

// Quantized weights, and how they were quantized.
struct Weights {
  std::string mode;
  int bits;
  int group_size;
  std::vector<array> parts;

  std::optional<array> biases() const {
    return parts.size() > 2 ? std::optional(parts[2]) : std::nullopt;
  }
};

Weights quantized(
    core::Shape shape,
    const std::string& mode = "affine",
    core::Dtype dtype = core::float32,
    std::optional<array> global_scale = std::nullopt) {
  const int bits = mode == "mxfp8" ? 8 : 4;
  const int group_size = mode == "affine" ? 64 : mode == "nvfp4" ? 16 : 32;
  auto w = core::astype(noise(std::move(shape), 1, 0.05f), dtype);
  auto parts = core::quantize(w, group_size, bits, mode, global_scale);
  core::eval(parts);
  return {mode, bits, group_size, std::move(parts)};
}

array product(
    const array& x,
    const Weights& w,
    bool transpose = true,
    core::StreamOrDevice s = {}) {
  return core::quantized_matmul(
      x,
      w.parts[0],
      w.parts[1],
      w.biases(),
      transpose,
      w.group_size,
      w.bits,
      w.mode,
      s);
}

array gather(
    const array& x,
    const Weights& w,
    std::optional<array> left,
    const array& right,
    bool transpose,
    bool sorted,
    std::optional<array> global_scale = std::nullopt) {
  return core::gather_qmm(
      x,
      w.parts[0],
      w.parts[1],
      w.biases(),
      std::move(left),
      right,
      transpose,
      w.group_size,
      w.bits,
      w.mode,
      global_scale,
      sorted);
}

// x, the axis of its rows, and a function that multiplies any of them.
struct Case {
  array x;
  int axis;
  std::function<array(const array&)> multiply;
};

array indices(std::vector<std::uint32_t> values) {
  return array(values.data(), {static_cast<int>(values.size())});
}

using Make = std::function<Case(int rows)>;

Make transposed_weights(int k) {
  return [k](int rows) {
    auto w = quantized({k, outputs});
    return Case{noise({rows, k}, 2), 0, [w](const array& x) {
                  return product(x, w, false);
                }};
  };
}

Make gathered(bool transpose, const std::string& mode = "affine") {
  return [transpose, mode](int rows) {
    auto w = quantized(
        transpose ? core::Shape{3, outputs, values}
                  : core::Shape{3, values, outputs},
        mode);
    auto left = indices({0, 1, 2, 3});
    auto right = indices({2, 0, 1, 2});
    return Case{noise({4, rows, values}, 2), 1, [=](const array& x) {
                  return gather(x, w, left, right, transpose, false);
                }};
  };
}

Make floating(const std::string& mode) {
  return [mode](int rows) {
    auto w = quantized({outputs, values}, mode);
    return Case{noise({rows, values}, 2), 0, [w](const array& x) {
                  return product(x, w);
                }};
  };
}

Make quantizing_x(const std::string& mode) {
  return [mode](int rows) {
    auto w = quantized({outputs, values}, mode);
    return Case{noise({rows, values}, 2), 0, [w](const array& x) {
                  return core::qqmm(
                      x, w.parts[0], w.parts[1], w.group_size, w.bits, w.mode);
                }};
  };
}

Make gathered_quantizing_x(const std::string& mode) {
  return [mode](int rows) {
    auto w = quantized({3, outputs, values}, mode);
    auto left = indices({0, 1, 2, 3});
    auto right = indices({2, 0, 1, 2});
    return Case{noise({4, rows, values}, 2), 1, [=](const array& x) {
                  return core::gather_qqmm(
                      x,
                      w.parts[0],
                      w.parts[1],
                      left,
                      right,
                      w.group_size,
                      w.bits,
                      w.mode);
                }};
  };
}

// The only products that quantize x and have matrix kernels. Right-sorted, the
// rows are the batch: products of one row each, all with the second matrix.
Make gathered_with_global_scales(bool sorted) {
  return [sorted](int rows) {
    auto scale = array(2.0f);
    auto w = quantized({3, outputs, values}, "nvfp4", core::bfloat16, scale);
    auto x = noise(
        sorted ? core::Shape{64 * rows, 1, values}
               : core::Shape{4, rows, values},
        2);
    return Case{
        core::astype(x, core::bfloat16), sorted ? 0 : 1, [=](const array& x) {
          std::optional<array> left;
          if (!sorted) {
            left = indices({0, 1, 2, 3});
          }
          auto right = sorted
              ? indices(std::vector<std::uint32_t>(x.shape(0), 1))
              : indices({2, 0, 1, 2});
          return core::gather_qqmm(
              x,
              w.parts[0],
              w.parts[1],
              left,
              right,
              w.group_size,
              w.bits,
              w.mode,
              array(3.0f),
              scale,
              sorted);
        }};
  };
}

// Bits, not numbers: the sign of zero counts.
std::int64_t differing(const array& a, const array& b) {
  const auto bits = a.dtype() == core::bfloat16 ? core::uint16 : core::uint32;
  auto differ = core::not_equal(core::view(a, bits), core::view(b, bits));
  return core::sum(differ).item<std::int32_t>();
}

// Makes a stream the thread's default for its lifetime.
class Default {
 public:
  explicit Default(RawStream stream)
      : before_(core::default_stream(core::Device::gpu)) {
    core::set_default_stream(core::Stream(stream.index, core::Device::gpu));
  }
  ~Default() {
    core::set_default_stream(before_);
  }
  Default(const Default&) = delete;
  Default& operator=(const Default&) = delete;

 private:
  core::Stream before_;
};

const std::map<std::string, Make>& cases() {
  static const auto* all = new std::map<std::string, Make>{
      {"quantized_matmul",
       [](int rows) {
         auto w = quantized({outputs, values});
         return Case{noise({rows, values}, 2), 0, [w](const array& x) {
                       return product(x, w);
                     }};
       }},
      {"quantized_matmul, x transposed in memory",
       [](int rows) {
         auto w = quantized({outputs, values});
         auto x = core::transpose(noise({values, rows}, 2));
         return Case{x, 0, [w](const array& x) { return product(x, w); }};
       }},
      {"quantized_matmul, gaps between batches of x",
       [](int rows) {
         auto w = quantized({outputs, values});
         auto x = core::slice(
             noise({2, rows + 3, values}, 2), {0, 0, 0}, {2, rows, values});
         return Case{x, 1, [w](const array& x) { return product(x, w); }};
       }},
      {"quantized_matmul, batched weights",
       [](int rows) {
         auto w = quantized({3, outputs, values});
         return Case{noise({3, rows, values}, 2), 1, [w](const array& x) {
                       return product(x, w);
                     }};
       }},
      {"quantized_matmul, not transposed, K = 512", transposed_weights(512)},
      {"quantized_matmul, not transposed, K = 2048", transposed_weights(2048)},
      {"quantized_matmul, not transposed, K = 10240",
       transposed_weights(10240)},
      {"quantized_matmul, mxfp4", floating("mxfp4")},
      {"quantized_matmul, mxfp8", floating("mxfp8")},
      {"quantized_matmul, nvfp4", floating("nvfp4")},
      {"gather_qmm", gathered(true)},
      {"gather_qmm, not transposed", gathered(false)},
      {"gather_qmm, mxfp4", gathered(true, "mxfp4")},
      {"gather_qmm, mxfp8", gathered(true, "mxfp8")},
      {"gather_qmm, nvfp4", gathered(true, "nvfp4")},
      {"gather_qmm, nvfp4 with global scales",
       [](int rows) {
         auto w = quantized({3, outputs, values}, "nvfp4");
         const float each[] = {2.0f, 3.0f, 5.0f};
         auto scales = array(each, {3});
         auto left = indices({0, 1, 2, 3});
         auto right = indices({2, 0, 1, 2});
         return Case{noise({4, rows, values}, 2), 1, [=](const array& x) {
                       return gather(x, w, left, right, true, false, scales);
                     }};
       }},
      {"gather_qmm, right-sorted",
       [](int rows) {
         // The rows are the batch: products of one row each, all with the
         // second matrix.
         auto w = quantized({3, outputs, values});
         return Case{noise({64 * rows, 1, values}, 2), 0, [w](const array& x) {
                       auto right =
                           indices(std::vector<std::uint32_t>(x.shape(0), 1));
                       return gather(x, w, std::nullopt, right, true, true);
                     }};
       }},
      {"gather_qqmm, mxfp4", gathered_quantizing_x("mxfp4")},
      {"gather_qqmm, mxfp8", gathered_quantizing_x("mxfp8")},
      {"gather_qqmm, nvfp4", gathered_quantizing_x("nvfp4")},
      {"gather_qqmm, nvfp4 with global scales",
       gathered_with_global_scales(false)},
      {"gather_qqmm, nvfp4 with global scales, right-sorted",
       gathered_with_global_scales(true)},
      {"qqmm, mxfp4", quantizing_x("mxfp4")},
      {"qqmm, mxfp8", quantizing_x("mxfp8")},
      {"qqmm, nvfp4", quantizing_x("nvfp4")},
      {"qqmm, nvfp4 with global scales",
       [](int rows) {
         auto scale = array(2.0f);
         auto w = quantized({outputs, values}, "nvfp4", core::bfloat16, scale);
         auto x = core::astype(noise({rows, values}, 2), core::bfloat16);
         return Case{x, 0, [w, scale](const array& x) {
                       return core::qqmm(
                           x,
                           w.parts[0],
                           w.parts[1],
                           w.group_size,
                           w.bits,
                           w.mode,
                           array(3.0f),
                           scale);
                     }};
       }},
  };
  return *all;
}

Case made(rust::Str name, int rows) {
  auto found = cases().find(std::string(name));
  if (found == cases().end()) {
    throw std::invalid_argument("no case is named " + std::string(name));
  }
  if (rows < 1 || rows > 1024) {
    throw std::invalid_argument("1 to 1024 rows");
  }
  return found->second(rows);
}

#ifdef MLX_OVERLAY_POLICIES

// A thread-local stream counts on its own: taken for a stream, it would name
// another one. Asking for its policy does not compile.
template <typename S>
concept HasPolicy = requires(S stream) {
  core::stream_policy(stream);
};
static_assert(HasPolicy<core::Stream>);
static_assert(!HasPolicy<core::ThreadLocalStream>);

#endif

} // namespace

rust::Vec<rust::String> probe_cases() {
  rust::Vec<rust::String> names;
  for (const auto& [name, make] : cases()) {
    names.push_back(name);
  }
  return names;
}

std::int64_t
probe_rows_that_differ(rust::Str name, std::int32_t rows, RawStream stream) {
  Default scope(stream);

  auto [x, axis, multiply] = made(name, rows);
  auto all = multiply(x);
  std::vector<array> each;
  for (int row = 0; row < x.shape(axis); row++) {
    auto start = core::Shape(x.ndim(), 0);
    auto stop = x.shape();
    start[axis] = row;
    stop[axis] = row + 1;
    each.push_back(multiply(core::contiguous(core::slice(x, start, stop))));
  }
  auto one_by_one = core::concatenate(each, axis);
  return differing(all, one_by_one);
}

void probe_together(rust::Str name, std::int32_t rows, RawStream stream) {
  Default scope(stream);
  auto c = made(name, rows);
  c.multiply(c.x).eval();
}

rust::Vec<std::int64_t> probe_compiled(RawStream first, RawStream second) {
  auto w = quantized({outputs, values});
  auto both = [&](const std::vector<array>& inputs) {
    std::vector<array> products;
    for (auto stream : {first, second}) {
      Default scope(stream);
      // Negated, because compile never merges what a function returns.
      products.push_back(core::negative(product(inputs[0], w)));
    }
    return products;
  };
  const std::vector<array> x = {noise({6, values}, 2)};
  auto plain = both(x);
  auto compiled = core::compile(both)(x);
  rust::Vec<std::int64_t> differ;
  differ.push_back(differing(plain[0], compiled[0]));
  differ.push_back(differing(plain[1], compiled[1]));
  differ.push_back(differing(plain[0], plain[1]));
  return differ;
}

rust::Vec<std::int64_t> probe_compiled_attention(RawStream stream) {
  Default scope(stream);
  // MLX adds in two passes from 1,024 keys on: some positions see fewer.
  constexpr int heads = 4, positions = 5, keys = 1026, dim = 64;
  auto q = noise({1, heads, positions, dim}, 1);
  auto k = noise({1, 1, keys, dim}, 2);
  auto v = noise({1, 1, keys, dim}, 3);
  auto attention = [](const std::vector<array>& x, const std::string& mask) {
    return core::fast::scaled_dot_product_attention(
        x[0], x[1], x[2], 1.0f, mask);
  };
  // Negated, because a compiled function is to contain more than attention.
  auto block = [&](const std::vector<array>& x) {
    return std::vector<array>{core::negative(attention(x, "causal"))};
  };
  std::vector<array> rows;
  for (int r = 0; r < positions; r++) {
    auto seen = [&](const array& x) {
      return core::slice(
          x, {0, 0, 0, 0}, {1, 1, keys - (positions - 1 - r), dim});
    };
    auto row = core::slice(q, {0, 0, r, 0}, {1, heads, r + 1, dim});
    rows.push_back(core::negative(attention({row, seen(k), seen(v)}, "")));
  }
  auto alone = core::concatenate(rows, 2);
  rust::Vec<std::int64_t> differ;
  differ.push_back(differing(block({q, k, v})[0], alone));
  differ.push_back(differing(core::compile(block)({q, k, v})[0], alone));
  differ.push_back(differing(core::compile(block, true)({q, k, v})[0], alone));
  return differ;
}

std::unique_ptr<Array> probe_imported(rust::Str file, RawStream stream) {
  const std::string path(file);
  auto w = quantized({outputs, values});
  auto x = noise({6, values}, 2);
  core::Stream s(stream.index, core::Device::gpu);
  core::export_function(
      path,
      [&](const core::Args& inputs) {
        return std::vector<array>{product(inputs[0], w, true, s)};
      },
      {x});
  return std::make_unique<Array>(core::import_function(path)({x})[0]);
}

rust::String probe_on_another_thread(RawStream stream) {
  auto w = quantized({outputs, values});
  auto lazy = product(
      noise({6, values}, 2),
      w,
      true,
      core::Stream(stream.index, core::Device::gpu));
  std::string said;
  std::thread([&] {
    try {
      lazy.eval();
    } catch (const std::exception& error) {
      said = error.what();
    }
  }).join();
  return said;
}

std::int32_t probe_thread_local(RawStream stream) {
  auto same = core::new_thread_local_stream(core::Device::gpu);
  while (same.index < stream.index) {
    same = core::new_thread_local_stream(core::Device::gpu);
  }
  auto w = quantized({outputs, values});
  auto y = product(noise({6, values}, 2), w, true, same);
  y.eval();
  return same.index;
}

} // namespace mlx_overlay::testing
