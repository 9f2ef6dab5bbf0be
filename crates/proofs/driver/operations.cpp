// Evaluates operations on rows on the simulated device: compares a block of
// rows under each policy with the same rows alone.
//
// Reads cases from standard input and answers each on standard output: one JSON
// object per line, with the fields of `Case` below, and of `Answer` in
// operations.rs. Row r of a case is a position; a block of m rows has the last
// m positions (for gated delta, which continues from a state, the first m).
// Rows alone are evaluated on a stream with the policy `default`, as a decoder
// does for one new token.
//
// If `run` is false, nothing is compared: the device is then one whose kernels
// do nothing (MTL_SIM_RUN=0), and the dispatches of each row and each block are
// recorded in full. With `record` they are recorded while kernels run, and the
// errors of blocks are computed as well.

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "common.h"
#include "mlx/row_policy.h"

namespace {

struct Case {
  std::string op, dtype;
  std::uint64_t seed{};
  int batch{1};
  std::vector<int> rows;
  std::vector<std::string> policies;
  bool run{true};
  bool record{};
  // attention, gated delta
  int heads{1}, kv_heads{1}, head_dim{}, value_dim{};
  int keys{}; // seen by the last position
  std::string mask{"causal"}; // causal, none, bool, additive
  bool sinks{};
  std::string layout{"heads"}; // of q: heads or positions first
  // products: x of (batch, rows, k) times n outputs
  int n{}, k{};
  std::string form{"nt"}; // nt: weights (n, k), transposed; nn: (k, n)
  std::string weights{"matrix"}; // matrix, batched, or folded: one key head
  float alpha{1}, beta{1};
  std::string bias{"vector"}; // vector, row or matrix
  // gathers
  int experts{1}, picks{1}, rows_a_pick{1};
  // quantized products
  int bits{4}, group{64};
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(
    Case,
    op,
    dtype,
    seed,
    batch,
    rows,
    policies,
    run,
    record,
    heads,
    kv_heads,
    head_dim,
    value_dim,
    keys,
    mask,
    sinks,
    layout,
    n,
    k,
    form,
    weights,
    alpha,
    beta,
    bias,
    experts,
    picks,
    rows_a_pick,
    bits,
    group)

Case parse(const std::string& line) {
  const json given = json::parse(line);
  const auto c = given.get<Case>();
  const json known = c;
  for (const auto& [name, _] : given.items()) {
    if (!known.contains(name)) {
      throw std::invalid_argument("a field that no case has: " + name);
    }
  }
  return c;
}

// One GPU stream for each policy, made on first use.
mx::Stream stream_of(const std::string& policy) {
  static std::map<std::string, int> made;
  if (!made.count(policy)) {
    mlx_row_policy parsed;
    int index;
    if (mlx_row_policy_from_text(policy.c_str(), &parsed) != 0 ||
        mlx_row_new_stream(parsed, &index) != 0) {
      throw std::invalid_argument(mlx_row_last_error());
    }
    made[policy] = index;
  }
  return mx::Stream(made[policy], mx::Device::gpu);
}

// The bits of each row of a result, [outer, rows, inner] in memory.
using Rows = std::vector<std::vector<std::uint32_t>>;

Rows rows_of(mx::array result, int axis) {
  result = mx::contiguous(result, false, stream_of("default"));
  mx::eval(result);
  const auto bits = bits_of(result);
  const int rows = result.shape(axis);
  std::size_t inner = 1;
  for (int i = axis + 1; i < static_cast<int>(result.ndim()); i++) {
    inner *= result.shape(i);
  }
  Rows found(rows);
  for (std::size_t at = 0; at < bits.size(); at++) {
    found[at / inner % rows].push_back(bits[at]);
  }
  return found;
}

// The results of an operation, each with its rows along an axis (-1: no rows, a
// state after the last row).
struct Result {
  mx::array array;
  int axis;
};
using Results = std::vector<Result>;

class Operation {
 public:
  virtual ~Operation() = default;
  // A block of m rows.
  virtual Results block(int m, mx::Stream s) = 0;
  // Row r of the block of m, alone. Rows are asked for in order.
  virtual Results alone(int r, int m, mx::Stream s) = 0;
  // Whether row r of the block of m is row r - 1 of that of m - 1, so that
  // results of rows alone can be reused for every block.
  virtual bool ends_together() const {
    return true;
  }
  // The largest error of row r of the block of m, in the first result, compared
  // with float64 and relative to the largest magnitude. No value if it is not
  // known.
  virtual std::optional<double>
  error(const std::vector<std::uint32_t>&, int, int) const {
    return std::nullopt;
  }
};

// Values that are exact in the type, as float; empty if nothing is computed.
struct Values {
  mx::Shape shape;
  std::vector<float> values;

  Values(Random& random, mx::Shape of, mx::Dtype dtype, float a, float b)
      : shape(std::move(of)) {
    if (random.idle()) {
      return;
    }
    std::size_t count = 1;
    for (auto extent : shape) {
      count *= extent;
    }
    values.resize(count);
    for (auto& value : values) {
      value = rounded(random.real(a, b), dtype);
    }
  }

  mx::array array(mx::Dtype dtype) const {
    if (!values.empty()) {
      return mx::array(values.begin(), shape, dtype);
    }
    return any(shape, dtype);
  }

  // [from, to) on an axis and [first, end) on the first one, as a separate
  // array: kernels may not load several values at once at the start of a slice.
  mx::array
  part(mx::Dtype dtype, int first, int end, int axis, int from, int to) const {
    auto extents = shape;
    extents[0] = end - first;
    extents[axis] = to - from;
    if (values.empty()) {
      return any(extents, dtype);
    }
    std::size_t outer = 1;
    for (int i = 0; i < axis; i++) {
      outer *= extents[i];
    }
    std::size_t inner = 1;
    for (std::size_t i = axis + 1; i < shape.size(); i++) {
      inner *= shape[i];
    }
    const std::size_t skipped = outer / extents[0] * first;
    std::vector<float> some;
    for (std::size_t i = skipped; i < skipped + outer; i++) {
      const auto rows = values.begin() + i * shape[axis] * inner;
      some.insert(some.end(), rows + from * inner, rows + to * inner);
    }
    return mx::array(some.begin(), extents, dtype);
  }

 private:
  static mx::array any(const mx::Shape& shape, mx::Dtype dtype) {
    auto any = mx::zeros(shape, dtype, stream_of("default"));
    mx::eval(any);
    return any;
  }
};

mx::array cut(const mx::array& x, int axis, int from, int to, mx::Stream s) {
  mx::Shape start(x.ndim(), 0);
  auto stop = x.shape();
  start[axis] = from;
  stop[axis] = to;
  return mx::slice(x, start, stop, s);
}

class Attention : public Operation {
 public:
  Attention(const Case& c, Random& random, int most)
      : c_(c),
        most_(most),
        dtype_(dtype_of(c.dtype)),
        q_(random, {c.batch, c.heads, most, c.head_dim}, dtype_, -1, 1),
        k_(random, {c.batch, c.kv_heads, c.keys, c.head_dim}, dtype_, -1, 1),
        v_(random, {c.batch, c.kv_heads, c.keys, c.value_dim}, dtype_, -1, 1),
        mask_(random, {1, 1, most, c.keys}, dtype_, -1, 1),
        sinks_(random, {c.heads}, dtype_, -1, 1),
        k(k_.array(dtype_)),
        v(v_.array(dtype_)) {}

  Results block(int m, mx::Stream s) override {
    return run(most_ - m, most_, c_.keys, s);
  }

  Results alone(int r, int m, mx::Stream s) override {
    const int position = most_ - m + r;
    return run(position, position + 1, keys_of(position), s);
  }

  std::optional<double>
  error(const std::vector<std::uint32_t>& bits, int r, int m) const override {
    const int position = most_ - m + r;
    const int n = keys_of(position);
    const int shared = c_.heads / c_.kv_heads;
    double worst = 0;
    for (int b = 0; b < c_.batch; b++) {
      for (int h = 0; h < c_.heads; h++) {
        const float* q = q_.values.data() +
            ((std::size_t(b) * c_.heads + h) * most_ + position) * c_.head_dim;
        const std::size_t head = std::size_t(b) * c_.kv_heads + h / shared;
        const float* k = k_.values.data() + head * c_.keys * c_.head_dim;
        const float* v = v_.values.data() + head * c_.keys * c_.value_dim;
        std::vector<double> scores(n);
        double top = c_.sinks ? sinks_.values[h] : -1e300;
        for (int i = 0; i < n; i++) {
          double score = 0;
          for (int d = 0; d < c_.head_dim; d++) {
            score += double(q[d]) * k[std::size_t(i) * c_.head_dim + d];
          }
          score *= scale();
          const float mask = mask_.values[std::size_t(position) * c_.keys + i];
          if (c_.mask == "additive") {
            score += mask;
          } else if (c_.mask == "bool" && !seen(mask)) {
            score = -1e300;
          }
          scores[i] = score;
          top = std::max(top, score);
        }
        double sum = c_.sinks ? std::exp(sinks_.values[h] - top) : 0;
        std::vector<double> out(c_.value_dim);
        for (int i = 0; i < n; i++) {
          const double weight = std::exp(scores[i] - top);
          sum += weight;
          for (int d = 0; d < c_.value_dim; d++) {
            out[d] += weight * v[std::size_t(i) * c_.value_dim + d];
          }
        }
        for (int d = 0; d < c_.value_dim; d++) {
          const std::size_t at =
              (std::size_t(b) * c_.heads + h) * c_.value_dim + d;
          const double found = value_of(bits[at], dtype_);
          const double far = std::abs(found - out[d] / sum);
          worst = std::isnan(worst) || far <= worst ? worst : far;
        }
      }
    }
    return worst;
  }

 private:
  float scale() const {
    return 1 / std::sqrt(float(c_.head_dim));
  }

  static bool seen(float mask) {
    return mask < 0.5f;
  }

  // Only causal rows see fewer keys than the last one.
  int keys_of(int position) const {
    return c_.mask == "causal" ? c_.keys - (most_ - 1 - position) : c_.keys;
  }

  Results run(int from, int to, int keys, mx::Stream s) const {
    auto q = cut(q_.array(dtype_), 2, from, to, s);
    if (c_.layout == "positions") {
      q = mx::transpose(
          mx::contiguous(mx::transpose(q, {0, 2, 1, 3}, s), false, s),
          {0, 2, 1, 3},
          s);
    } else {
      q = mx::contiguous(q, false, s);
    }
    std::optional<mx::array> mask;
    if (c_.mask == "additive" || c_.mask == "bool") {
      mask = cut(mask_.array(dtype_), 2, from, to, s);
      if (c_.mask == "bool") {
        mask = mx::less(*mask, mx::array(0.5f, dtype_), s);
      }
    }
    const bool causal = c_.mask == "causal" && to - from > 1;
    return {
        {mx::fast::scaled_dot_product_attention(
             q,
             cut(k, 2, 0, keys, s),
             cut(v, 2, 0, keys, s),
             scale(),
             causal ? "causal" : "",
             mask,
             c_.sinks ? std::optional(sinks_.array(dtype_)) : std::nullopt,
             false,
             s),
         2}};
  }

  Case c_;
  int most_;
  mx::Dtype dtype_;
  Values q_, k_, v_, mask_, sinks_;
  mx::array k, v;
};

// x of (batch, rows, k) times weights; with `addmm`, plus a summand.
class Product : public Operation {
 public:
  Product(const Case& c, Random& random, int most)
      : c_(c),
        most_(most),
        dtype_(dtype_of(c.dtype)),
        x_(random, shape_of_x(c, most), dtype_, -1, 1),
        w_(random, shape_of_w(c), dtype_, -1, 1),
        c_bias_(random, shape_of_bias(c, most), dtype_, -1, 1),
        w(w_.array(dtype_)) {}

  Results block(int m, mx::Stream s) override {
    const auto x = cut(x_.array(dtype_), axis(), most_ - m, most_, s);
    return {run(mx::contiguous(x, false, s), 0, c_.batch, most_ - m, most_, s)};
  }

  Results alone(int r, int m, mx::Stream s) override {
    const int position = most_ - m + r;
    if (c_.weights != "matrix") {
      return {row(0, c_.batch, position, s)};
    }
    std::vector<mx::array> sequences;
    for (int b = 0; b < c_.batch; b++) {
      sequences.push_back(row(b, b + 1, position, s).array);
    }
    return {{mx::concatenate(sequences, 0, s), axis()}};
  }

  std::optional<double>
  error(const std::vector<std::uint32_t>& bits, int r, int m) const override {
    if (c_.weights != "matrix") {
      return std::nullopt;
    }
    const int position = most_ - m + r;
    double worst = 0;
    for (int b = 0; b < c_.batch; b++) {
      const std::size_t row = std::size_t(b) * most_ + position;
      for (int n = 0; n < c_.n; n++) {
        double sum = 0;
        double size = 0;
        for (int k = 0; k < c_.k; k++) {
          const std::size_t at = c_.form == "nt" ? std::size_t(n) * c_.k + k
                                                 : std::size_t(k) * c_.n + n;
          const double term = double(x_.values[row * c_.k + k]) * w_.values[at];
          sum += term;
          size += std::abs(term);
        }
        if (c_.op == "addmm") {
          const double added =
              c_bias_.values[c_.bias == "matrix" ? row * c_.n + n : n];
          sum = c_.alpha * sum + c_.beta * added;
          size = std::abs(c_.alpha) * size + std::abs(c_.beta * added);
        }
        const double found = value_of(bits[std::size_t(b) * c_.n + n], dtype_);
        const double relative = std::abs(found - sum) / size;
        worst = std::isnan(worst) || relative <= worst ? worst : relative;
      }
    }
    return worst;
  }

 private:
  // matrix, batched: (batch, rows, k); folded: heads that share one matrix a
  // sequence, (batch, 1, heads, rows, k) times (batch, 1, 1, k, n).
  static mx::Shape shape_of_x(const Case& c, int most) {
    if (c.weights == "folded") {
      return {c.batch, 1, c.heads, most, c.k};
    }
    return {c.batch, most, c.k};
  }

  static mx::Shape shape_of_w(const Case& c) {
    mx::Shape shape =
        c.form == "nt" ? mx::Shape{c.n, c.k} : mx::Shape{c.k, c.n};
    if (c.weights == "folded") {
      shape.insert(shape.begin(), {c.batch, 1, 1});
    } else if (c.weights == "batched") {
      shape.insert(shape.begin(), c.batch);
    }
    return shape;
  }

  static mx::Shape shape_of_bias(const Case& c, int most) {
    if (c.op != "addmm") {
      return {1};
    }
    return c.bias == "matrix" ? mx::Shape{c.batch, most, c.n}
        : c.bias == "row"     ? mx::Shape{1, c.n}
                              : mx::Shape{c.n};
  }

  int axis() const {
    return c_.weights == "folded" ? 3 : 1;
  }

  Result row(int first, int end, int position, mx::Stream s) const {
    const auto x = x_.part(dtype_, first, end, axis(), position, position + 1);
    return run(x, first, end, position, position + 1, s);
  }

  Result run(mx::array x, int first, int end, int from, int to, mx::Stream s)
      const {
    if (c_.form == "strided") {
      // Each row of x starts at an odd position of a longer one.
      x = mx::concatenate({x, x}, -1, s);
      x = cut(mx::contiguous(x, false, s), x.ndim() - 1, 0, c_.k, s);
    }
    const auto weights = c_.form == "nt" ? mx::swapaxes(w, -1, -2, s) : w;
    if (c_.op != "addmm") {
      return {mx::matmul(x, weights, s), axis()};
    }
    auto bias = c_bias_.array(dtype_);
    if (c_.bias == "matrix") {
      bias = cut(cut(bias, 0, first, end, s), 1, from, to, s);
    }
    return {mx::addmm(bias, x, weights, c_.alpha, c_.beta, s), axis()};
  }

  Case c_;
  int most_;
  mx::Dtype dtype_;
  Values x_, w_, c_bias_;
  mx::array w;
};

// A layer of experts: each token picks some, and its row (or rows) of x is
// multiplied by their matrices. A block sorts the picks by expert, as mlx-lm's
// SwitchGLU does from 64 picks on; a token alone does not.
class Gather : public Operation {
 public:
  Gather(const Case& c, Random& random, int most)
      : c_(c),
        most_(most),
        dtype_(dtype_of(c.dtype)),
        x_(random, {most, c.rows_a_pick, c.k}, dtype_, -1, 1),
        w_(random, {c.experts, c.n, c.k}, dtype_, -1, 1) {
    for (int i = 0; i < most * c.picks; i++) {
      picks_.push_back(static_cast<std::uint32_t>(random.next() % c.experts));
    }
  }

  Results block(int m, mx::Stream s) override {
    const int first = most_ - m;
    const std::size_t count = std::size_t(m) * c_.picks;
    std::vector<std::uint32_t> order(count), back(count), tokens, experts;
    for (std::size_t i = 0; i < count; i++) {
      order[i] = static_cast<std::uint32_t>(i);
    }
    auto expert = [&](std::uint32_t i) {
      return picks_[std::size_t(first) * c_.picks + i];
    };
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
      return expert(a) < expert(b);
    });
    for (std::size_t i = 0; i < count; i++) {
      back[order[i]] = static_cast<std::uint32_t>(i);
      tokens.push_back(first + order[i] / c_.picks);
      experts.push_back(expert(order[i]));
    }
    const int size = static_cast<int>(count);
    const auto x =
        mx::take(x_.array(dtype_), mx::array(tokens.begin(), {size}), 0, s);
    auto y = multiply(x, mx::array(experts.begin(), {size}), true, s);
    y = mx::take(y, mx::array(back.begin(), {size}), 0, s);
    return {{mx::reshape(y, {m, c_.picks, c_.rows_a_pick, c_.n}, s), 0}};
  }

  Results alone(int r, int m, mx::Stream s) override {
    const int token = most_ - m + r;
    const auto x =
        mx::expand_dims(cut(x_.array(dtype_), 0, token, token + 1, s), 1, s);
    const auto first = picks_.begin() + std::size_t(token) * c_.picks;
    const mx::array experts(first, {1, c_.picks}, mx::uint32);
    std::vector<mx::array> rows;
    for (int row = 0; row < c_.rows_a_pick; row++) {
      const auto one = mx::contiguous(cut(x, 2, row, row + 1, s), false, s);
      rows.push_back(multiply(one, experts, false, s));
    }
    return {{mx::concatenate(rows, 2, s), 0}};
  }

 private:
  mx::array multiply(
      const mx::array& x,
      const mx::array& experts,
      bool sorted,
      mx::Stream s) {
    const auto w = w_.array(dtype_);
    if (c_.op == "gather_mm") {
      return mx::gather_mm(
          x, mx::swapaxes(w, -1, -2, s), std::nullopt, experts, sorted, s);
    }
    if (parts_.empty()) {
      parts_ = mx::quantize(w, c_.group, c_.bits, "affine", std::nullopt, s);
      mx::eval(parts_);
    }
    return mx::gather_qmm(
        x,
        parts_[0],
        parts_[1],
        parts_[2],
        std::nullopt,
        experts,
        true,
        c_.group,
        c_.bits,
        "affine",
        std::nullopt,
        sorted,
        s);
  }

  Case c_;
  int most_;
  mx::Dtype dtype_;
  Values x_, w_;
  std::vector<std::uint32_t> picks_;
  std::vector<mx::array> parts_;
};

// x of (batch, rows, k) times quantized weights of (k, n), packed along n.
class NotTransposed : public Operation {
 public:
  NotTransposed(const Case& c, Random& random, int most)
      : c_(c),
        most_(most),
        dtype_(dtype_of(c.dtype)),
        x_(random, {c.batch, most, c.k}, dtype_, -1, 1),
        w_(random, {c.k, c.n}, dtype_, -1, 1) {}

  Results block(int m, mx::Stream s) override {
    return {run(0, c_.batch, most_ - m, most_, s)};
  }

  Results alone(int r, int m, mx::Stream s) override {
    const int position = most_ - m + r;
    std::vector<mx::array> sequences;
    for (int b = 0; b < c_.batch; b++) {
      sequences.push_back(run(b, b + 1, position, position + 1, s).array);
    }
    return {{mx::concatenate(sequences, 0, s), 1}};
  }

 private:
  Result run(int first, int end, int from, int to, mx::Stream s) {
    if (parts_.empty()) {
      parts_ = mx::quantize(
          w_.array(dtype_), c_.group, c_.bits, "affine", std::nullopt, s);
      mx::eval(parts_);
    }
    auto x = cut(cut(x_.array(dtype_), 0, first, end, s), 1, from, to, s);
    return {
        mx::quantized_matmul(
            mx::contiguous(x, false, s),
            parts_[0],
            parts_[1],
            parts_[2],
            false,
            c_.group,
            c_.bits,
            "affine",
            s),
        1};
  }

  Case c_;
  int most_;
  mx::Dtype dtype_;
  Values x_, w_;
  std::vector<mx::array> parts_;
};

class GatedDelta : public Operation {
 public:
  GatedDelta(const Case& c, Random& random, int most)
      : c_(c),
        dtype_(dtype_of(c.dtype)),
        q_(random, {c.batch, most, c.kv_heads, c.head_dim}, dtype_, -.1f, .1f),
        k_(random, {c.batch, most, c.kv_heads, c.head_dim}, dtype_, -.1f, .1f),
        v_(random, {c.batch, most, c.heads, c.value_dim}, dtype_, -1, 1),
        gates_(random, {c.batch, most, c.heads}, dtype_, .5f, 1),
        beta_(random, {c.batch, most, c.heads}, dtype_, 0, 1),
        before_(
            random,
            {c.batch, c.heads, c.value_dim, c.head_dim},
            mx::float32,
            -.1f,
            .1f),
        state_(before_.array(mx::float32)) {}

  bool ends_together() const override {
    return false;
  }

  Results block(int m, mx::Stream s) override {
    return run(0, m, before_.array(mx::float32), s);
  }

  Results alone(int r, int, mx::Stream s) override {
    if (r == 0) {
      state_ = before_.array(mx::float32);
    }
    auto results = run(r, r + 1, state_, s);
    mx::eval({results[0].array, results[1].array});
    state_ = results[1].array;
    return results;
  }

 private:
  Results run(int from, int to, const mx::array& state, mx::Stream s) const {
    auto part = [&](const Values& values) {
      return mx::contiguous(
          cut(values.array(dtype_), 1, from, to, s), false, s);
    };
    auto results = mx::fast::gated_delta_update(
        part(q_),
        part(k_),
        part(v_),
        part(gates_),
        part(beta_),
        state,
        std::nullopt,
        s);
    return {{results[0], 1}, {results[1], -1}};
  }

  Case c_;
  mx::Dtype dtype_;
  Values q_, k_, v_, gates_, beta_, before_;
  mx::array state_;
};

std::unique_ptr<Operation> operation_of(const Case& c, int most) {
  Random random(c.seed, !c.run);
  if (c.op == "attention") {
    return std::make_unique<Attention>(c, random, most);
  }
  if (c.op == "matmul" || c.op == "addmm") {
    return std::make_unique<Product>(c, random, most);
  }
  if (c.op == "gather_mm" || c.op == "gather_qmm") {
    return std::make_unique<Gather>(c, random, most);
  }
  if (c.op == "qmm_n") {
    return std::make_unique<NotTransposed>(c, random, most);
  }
  if (c.op == "gated_delta") {
    return std::make_unique<GatedDelta>(c, random, most);
  }
  throw std::invalid_argument("no operation is called " + c.op);
}

// The rows of each result, one list after the other; a state is one row.
Rows bits_of_results(const Results& results) {
  Rows all;
  for (const auto& result : results) {
    const auto& array = result.array;
    auto some = result.axis < 0
        ? rows_of(mx::flatten(array, stream_of("default")), 0)
        : rows_of(array, result.axis);
    if (result.axis < 0) {
      std::vector<std::uint32_t> state;
      for (const auto& row : some) {
        state.insert(state.end(), row.begin(), row.end());
      }
      some = {state};
    }
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

void evaluate(const Results& results) {
  std::vector<mx::array> arrays;
  for (const auto& result : results) {
    arrays.push_back(result.array);
  }
  mx::eval(arrays);
}

// The dispatches during its lifetime, if requested.
class Recording {
 public:
  explicit Recording(bool wanted) : wanted_(wanted) {
    if (wanted_) {
      metal_sim_trace_start();
    }
  }
  ~Recording() {
    if (wanted_) {
      metal_sim_trace_stop();
    }
  }
  json take() const {
    return wanted_ ? dispatches(::take(metal_sim_trace_take())) : json::array();
  }

 private:
  bool wanted_;
};

json answer(const Case& c) {
  if (c.rows.empty() || c.policies.empty()) {
    throw std::invalid_argument("a case has rows and policies");
  }
  const int most = *std::max_element(c.rows.begin(), c.rows.end());
  auto operation = operation_of(c, most);
  json answer = {{"alone", json::object()}, {"blocks", json::array()}};

  // Rows alone: of each result, position by position.
  std::map<int, std::vector<Rows>> alone; // by the rows of the block
  std::optional<double> error;
  answer["alone"]["rows"] = json::array();
  metal_sim_reset_counts();
  for (int m : c.rows) {
    if (operation->ends_together() && m != most) {
      continue;
    }
    for (int r = 0; r < m; r++) {
      Recording recording(!c.run || c.record);
      auto results = operation->alone(r, m, stream_of("default"));
      evaluate(results);
      if (!c.run || c.record) {
        answer["alone"]["rows"].push_back(recording.take());
      }
      if (!c.run) {
        continue;
      }
      alone[m].push_back(bits_of_results(results));
      if (auto far = operation->error(alone[m].back()[0], r, m)) {
        error = error && *error > *far ? *error : *far;
      }
    }
  }
  answer["alone"]["kernels"] = json::parse(take(metal_sim_dispatch_counts()));
  answer["alone"]["error"] = error ? json(*error) : json();

  for (const auto& policy : c.policies) {
    for (int m : c.rows) {
      const auto s = stream_of(policy);
      auto results = operation->block(m, s);
      metal_sim_reset_counts();
      Recording recording(!c.run || c.record);
      evaluate(results);
      json block = {
          {"policy", policy},
          {"m", m},
          {"kernels", json::parse(take(metal_sim_dispatch_counts()))},
          {"outputs", 0},
          {"differing", 0}};
      block["dispatches"] = recording.take();
      if (c.run) {
        const auto found = bits_of_results(results);
        std::size_t outputs = 0;
        std::size_t differing = 0;
        const bool whole = !operation->ends_together();
        const auto& known = alone[whole ? m : most];
        for (std::size_t i = 0; i < found.size(); i++) {
          // After the rows: states that the last row leaves.
          const bool state = i >= static_cast<std::size_t>(m);
          const std::size_t row = state ? m - 1 : i;
          const auto& expected =
              known[whole ? row : most - m + row][state ? i - m + 1 : 0];
          for (std::size_t at = 0; at < found[i].size(); at++) {
            differing += found[i][at] != expected.at(at);
          }
          outputs += found[i].size();
        }
        if (c.record) {
          std::optional<double> largest;
          for (int r = 0; r < m; r++) {
            if (auto far = operation->error(found[r], r, m)) {
              largest = largest && *largest > *far ? *largest : *far;
            }
          }
          block["error"] = largest ? json(*largest) : json();
        }
        block["outputs"] = outputs;
        block["differing"] = differing;
      }
      answer["blocks"].push_back(std::move(block));
    }
  }
  return answer;
}

} // namespace

int main(int argc, char** argv) {
  return serve(
      argc, argv, [](const std::string& line) { return answer(parse(line)); });
}
