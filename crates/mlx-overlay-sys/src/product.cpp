#include "mlx-overlay-sys/src/product.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "mlx-overlay-sys/src/check.h"
#include "mlx-overlay-sys/src/convert.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "mlx/utils.h"

namespace mlx_overlay {

namespace {

namespace core = mlx::core;

std::optional<core::array> biases(rust::Slice<const ArrayRef> parts) {
  return parts.size() > 2 ? std::optional(parts[2].array.get()) : std::nullopt;
}

struct Factors {
  core::array x;
  core::array scales;
  std::optional<core::array> biases;
};

// Casts factors to the type of their product. MLX would cast these inputs on
// the default stream instead of the given one; after this cast it has nothing
// to do.
Factors
cast(const core::array& x, rust::Slice<const ArrayRef> parts, core::Stream s) {
  Factors factors{x, parts[1].array.get(), biases(parts)};
  if (factors.biases) {
    auto dtype = core::result_type({x, factors.scales, *factors.biases});
    factors.x = core::astype(x, dtype, s);
    factors.scales = core::astype(factors.scales, dtype, s);
    factors.biases = core::astype(*factors.biases, dtype, s);
  }
  return factors;
}

// The matrices from which a gather picks.
std::int64_t batch_of(const core::array& array) {
  return array.size() / (std::int64_t{array.shape(-1)} * array.shape(-2));
}

std::optional<core::array>
picks(rust::Slice<const ArrayRef> some, std::int64_t matrices, core::Stream s) {
  return some.empty()
      ? std::nullopt
      : std::optional(within(operand(some[0].array), matrices, s));
}

} // namespace

std::unique_ptr<Array>
matmul(const Array& a, const Array& b, RawStream stream) {
  return wrap(core::matmul(operand(a), operand(b), to_mlx(stream)));
}

std::unique_ptr<Array> addmm(
    const Array& c,
    const Array& a,
    const Array& b,
    float alpha,
    float beta,
    RawStream stream) {
  return wrap(core::addmm(
      operand(c), operand(a), operand(b), alpha, beta, to_mlx(stream)));
}

Quantized
quantize(const Array& w, const WeightFormat& format, RawStream stream) {
  check_unquantized(operand(w), format);
  auto parts = core::quantize(
      w.get(),
      format.group_size,
      format.bits,
      core::quantization_mode_to_string(mode_of(format)),
      std::nullopt,
      to_mlx(stream));
  return Quantized{
      wrap(std::move(parts.at(0))),
      wrap(std::move(parts.at(1))),
      parts.size() > 2 ? wrap(std::move(parts[2])) : nullptr};
}

std::unique_ptr<Array> dequantize(
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format,
    RawStream stream) {
  check_quantized(parts, format);
  return wrap(core::dequantize(
      parts[0].array.get(),
      parts[1].array.get(),
      biases(parts),
      format.group_size,
      format.bits,
      core::quantization_mode_to_string(mode_of(format)),
      std::nullopt,
      std::nullopt,
      to_mlx(stream)));
}

std::unique_ptr<Array> quantized_matmul(
    const Array& x,
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format,
    RawStream stream) {
  check_factor(operand(x), parts, format);
  auto s = to_mlx(stream);
  auto factors = cast(x.get(), parts, s);
  return wrap(core::quantized_matmul(
      factors.x,
      parts[0].array.get(),
      factors.scales,
      factors.biases,
      /* transpose= */ true,
      format.group_size,
      format.bits,
      core::quantization_mode_to_string(mode_of(format)),
      s));
}

std::unique_ptr<Array> gather_matmul(
    const Array& a,
    const Array& b,
    rust::Slice<const ArrayRef> lhs,
    const Array& rhs,
    bool sorted,
    RawStream stream) {
  auto s = to_mlx(stream);
  const auto& left = operand(a);
  const auto& right = operand(b);
  if (left.ndim() < 2 || right.ndim() < 2) {
    throw std::invalid_argument("mlx-overlay: a gather needs matrices");
  }
  return wrap(core::gather_mm(
      left,
      right,
      picks(lhs, batch_of(left), s),
      within(operand(rhs), batch_of(right), s),
      sorted,
      s));
}

std::unique_ptr<Array> gather_quantized_matmul(
    const Array& x,
    rust::Slice<const ArrayRef> parts,
    rust::Slice<const ArrayRef> lhs,
    const Array& rhs,
    const WeightFormat& format,
    bool sorted,
    RawStream stream) {
  check_picked(operand(x), parts, format);
  auto s = to_mlx(stream);
  auto factors = cast(x.get(), parts, s);
  const auto& packed = parts[0].array.get();
  return wrap(core::gather_qmm(
      factors.x,
      packed,
      factors.scales,
      factors.biases,
      picks(lhs, batch_of(x.get()), s),
      within(operand(rhs), packed.shape(0), s),
      /* transpose= */ true,
      format.group_size,
      format.bits,
      core::quantization_mode_to_string(mode_of(format)),
      /* global_scale= */ std::nullopt,
      sorted,
      s));
}

} // namespace mlx_overlay
