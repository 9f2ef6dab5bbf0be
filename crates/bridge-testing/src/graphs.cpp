#include "bridge-testing/src/graphs.h"

#include <functional>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/fast.h"
#include "mlx/fft.h"
#include "mlx/ops.h"
#include "mlx/random.h"
#include "mlx/transforms.h"

namespace mlx_overlay::testing {

namespace {

namespace core = mlx::core;
using core::array;

constexpr int rows = 4, keys = 96, heads = 2, dims = 64;

// The inputs of a graph are never evaluated.
array values(core::Shape shape, core::Dtype dtype = core::float32) {
  return core::full(std::move(shape), 0.5f, dtype);
}

array picks(int count) {
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  for (auto& pick : all) {
    pick %= 3;
  }
  return array(all.data(), {count});
}

array gathered(int count, bool sorted) {
  return core::gather_mm(
      values({count, 1, dims}),
      values({3, dims, 32}),
      std::nullopt,
      picks(count),
      sorted);
}

struct Attention {
  array q = values({1, heads, rows, dims});
  array k = values({1, heads, keys, dims});
  array v = values({1, heads, keys, dims});

  array scores() const {
    return core::matmul(q, core::swapaxes(k, -1, -2));
  }

  array whole(const std::string& mask, std::optional<array> given = {}) const {
    return core::fast::scaled_dot_product_attention(
        q, k, v, 1.0f, mask, std::move(given));
  }
};

array gated_delta(int tokens) {
  // A shape for which MLX has a kernel.
  return core::fast::gated_delta_update(
      values({1, tokens, 16, 128}),
      values({1, tokens, 16, 128}),
      values({1, tokens, 32, 128}),
      values({1, tokens, 32}),
      values({1, tokens, 32}))[0];
}

using Graph = std::function<array()>;

const std::map<std::string, Graph>& graphs() {
  static const auto* all = new std::map<std::string, Graph>{
      {"sorted picks", [] { return gathered(64, true); }},
      {"sorted picks, more than a block", [] { return gathered(600, true); }},
      {"picks in any order", [] { return gathered(600, false); }},
      {"causal attention", [] { return Attention().whole("causal"); }},
      {"attention with an array mask",
       [] {
         return Attention().whole("", values({rows, keys}));
       }},
      {"attention with more positions than keys",
       [] {
         Attention a;
         a.q = values({1, heads, 12, dims});
         a.k = a.v = values({1, heads, 9, dims});
         return a.whole("causal");
       }},
      {"attention in the trace of a gradient",
       [] {
         Attention a;
         auto traced = [&](const std::vector<array>& in) {
           auto of = a;
           of.q = in[0];
           return std::vector<array>{of.whole("causal")};
         };
         return core::vjp(traced, {a.q}, {values(a.q.shape())}).first[0];
       }},
      {"attention by hand",
       [] {
         Attention a;
         auto weights = core::softmax(a.scores(), -1);
         return core::matmul(core::astype(weights, core::float32), a.v);
       }},
      {"attention by hand, scaled after the softmax",
       [] {
         Attention a;
         auto weights = core::softmax(a.scores(), -1);
         auto halved = core::divide(weights, array(2.0f));
         return core::matmul(
             core::reshape(halved, {1, heads, rows, keys}), a.v);
       }},
      {"a quantized cache",
       [] {
         Attention a;
         auto v = core::quantize(a.v, 32, 4);
         return core::quantized_matmul(
             core::softmax(a.scores(), -1), v[0], v[1], v[2], false, 32, 4);
       }},
      {"a router",
       [] {
         auto x = values({rows, dims});
         auto logits = core::matmul(x, values({dims, 3}));
         auto best = core::slice(core::softmax(logits, -1), {0, 0}, {rows, 1});
         return core::matmul(core::multiply(x, best), values({dims, 32}));
       }},
      {"a kernel of the program's own",
       [] {
         auto twice = core::fast::metal_kernel(
             "twice", {"x"}, {"y"}, "y[0] = 2 * x[0];");
         return twice(
             {values({rows})},
             {{rows}},
             {core::float32},
             {1, 1, 1},
             {1, 1, 1},
             {},
             std::nullopt,
             false,
             {})[0];
       }},
      {"a running sum in bfloat16",
       [] {
         return core::cumsum(values({rows, dims}, core::bfloat16), 0);
       }},
      {"a running sum in float32",
       [] {
         return core::cumsum(values({rows, dims}), 0);
       }},
      {"gated delta of 8 tokens", [] { return gated_delta(8); }},
      {"gated delta of 16 tokens", [] { return gated_delta(16); }},
      {"gated delta of 17 tokens", [] { return gated_delta(17); }},
      {"a convolution of one dimension",
       [] {
         return core::conv1d(
             values({1, rows, dims}), values({dims, 4, 1}), 1, 0, 1, dims);
       }},
      {"a convolution of two dimensions",
       [] {
         return core::conv2d(values({1, 8, 8, 4}), values({4, 3, 3, 4}));
       }},
      {"a long sum",
       [] {
         return core::sum(values({rows, 512}), -1);
       }},
      {"a long sum of columns",
       [] {
         return core::sum(values({rows, 512, dims}), 1);
       }},
      {"a sum over experts",
       [] {
         return core::sum(values({rows, 8, dims}), -2);
       }},
      {"a long maximum",
       [] {
         return core::max(values({rows, 512}), -1);
       }},
      {"random numbers",
       [] {
         return core::random::bits({rows, dims}, 4, core::random::key(1));
       }},
      {"a Fourier transform",
       [] {
         return core::fft::fft(values({rows, dims}));
       }},
      {"what computes each row by itself",
       [] {
         auto x = values({rows, dims});
         x = core::fast::rms_norm(x, values({dims}), 1e-5f);
         x = core::fast::layer_norm(x, values({dims}), values({dims}), 1e-5f);
         x = core::multiply(core::sigmoid(x), core::rsqrt(core::square(x)));
         x = core::where(core::isnan(x), core::log2(core::abs(x)), x);
         x = core::view(core::view(x, core::uint32), core::float32);
         x = core::fast::rope(
             core::reshape(x, {1, 1, rows, dims}),
             dims,
             false,
             10000.0f,
             1.0f,
             3);
         auto top = core::argpartition(core::softmax(x, -1), -8, -1);
         return core::take_along_axis(x, top, -1);
       }},
  };
  return *all;
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

} // namespace

std::unique_ptr<Array> probe_graph(rust::Str name, RawStream stream) {
  Default scope(stream);
  auto found = graphs().find(std::string(name));
  if (found == graphs().end()) {
    throw std::invalid_argument("no graph is named " + std::string(name));
  }
  return std::make_unique<Array>(found->second());
}

std::int64_t probe_sums_that_differ(
    std::int32_t sums,
    std::int32_t terms,
    bool column,
    RawStream stream) {
  Default scope(stream);
  // Each row of a column sum has several columns.
  const int columns = column ? 4096 : 1;
  auto shape =
      column ? core::Shape{sums, terms, columns} : core::Shape{sums, terms};
  auto x =
      core::random::normal(shape, core::float32, 0, 1, core::random::key(1));
  x.eval();
  auto all = core::sum(x, 1);
  std::vector<array> each;
  for (int i = 0; i < sums; i++) {
    auto start = core::Shape(shape.size(), 0);
    auto stop = shape;
    start[0] = i;
    stop[0] = i + 1;
    auto one = core::contiguous(core::slice(x, start, stop));
    each.push_back(core::sum(one, 1));
  }
  auto differ = core::not_equal(
      core::view(all, core::uint32),
      core::view(core::concatenate(each, 0), core::uint32));
  return core::sum(differ).item<std::int32_t>();
}

} // namespace mlx_overlay::testing
