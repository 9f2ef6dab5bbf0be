#include "mlx-overlay-sys/src/ops.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "mlx-overlay-sys/src/check.h"
#include "mlx-overlay-sys/src/convert.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/fast.h"
#include "mlx/ops.h"
#include "mlx/utils.h"

namespace mlx_overlay {

namespace {

namespace core = mlx::core;

core::Shape extents(rust::Slice<const std::int32_t> values) {
  return core::Shape(values.begin(), values.end());
}

} // namespace

std::unique_ptr<Array>
as_type(const Array& array, ElementKind kind, RawStream stream) {
  return wrap(core::astype(operand(array), to_mlx(kind), to_mlx(stream)));
}

std::unique_ptr<Array> reshape(
    const Array& array,
    rust::Slice<const std::int32_t> shape,
    RawStream stream) {
  const auto& value = operand(array);
  // MLX would infer an extent of -1, and divides by the others.
  if (std::any_of(shape.begin(), shape.end(), [](int e) { return e < 1; })) {
    throw std::invalid_argument("mlx-overlay: extents must be 1 or more");
  }
  return wrap(core::reshape(value, extents(shape), to_mlx(stream)));
}

std::unique_ptr<Array> transpose_axes(
    const Array& array,
    rust::Slice<const std::int32_t> axes,
    RawStream stream) {
  return wrap(
      core::transpose(array.get(), {axes.begin(), axes.end()}, to_mlx(stream)));
}

std::unique_ptr<Array> slice(
    const Array& array,
    rust::Slice<const std::int32_t> start,
    rust::Slice<const std::int32_t> stop,
    RawStream stream) {
  return wrap(
      core::slice(array.get(), extents(start), extents(stop), to_mlx(stream)));
}

std::unique_ptr<Array> slice_update(
    const Array& array,
    const Array& update,
    rust::Slice<const std::int32_t> start,
    rust::Slice<const std::int32_t> stop,
    RawStream stream) {
  return wrap(core::slice_update(
      array.get(),
      update.get(),
      extents(start),
      extents(stop),
      to_mlx(stream)));
}

std::unique_ptr<Array> take_rows(
    const Array& array,
    rust::Slice<const std::uint32_t> indices,
    RawStream stream) {
  const auto& value = operand(array);
  const std::uint32_t length = value.ndim() > 0 ? value.shape(0) : 0;
  for (auto index : indices) {
    if (index >= length) {
      throw std::out_of_range(
          "mlx-overlay: there is no entry " + std::to_string(index) +
          " among " + std::to_string(length));
    }
  }
  if (indices.empty()) {
    throw std::invalid_argument("mlx-overlay: no entry is asked for");
  }
  const core::array list(
      indices.data(),
      {core::safe_cast(indices.size(), "take_rows")},
      core::uint32);
  return wrap(core::take(value, list, 0, to_mlx(stream)));
}

std::unique_ptr<Array> add(const Array& a, const Array& b, RawStream stream) {
  return wrap(core::add(operand(a), operand(b), to_mlx(stream)));
}

std::unique_ptr<Array>
multiply(const Array& a, const Array& b, RawStream stream) {
  return wrap(core::multiply(operand(a), operand(b), to_mlx(stream)));
}

std::unique_ptr<Array> sigmoid(const Array& array, RawStream stream) {
  return wrap(core::sigmoid(operand(array), to_mlx(stream)));
}

std::unique_ptr<Array> argmax(const Array& array, RawStream stream) {
  return wrap(
      core::argmax(operand(array), -1, /* keepdims= */ false, to_mlx(stream)));
}

std::unique_ptr<Array>
rms_norm(const Array& x, const Array& weight, float eps, RawStream stream) {
  return wrap(
      core::fast::rms_norm(operand(x), operand(weight), eps, to_mlx(stream)));
}

std::unique_ptr<Array> rope(
    const Array& x,
    std::int32_t dims,
    float base,
    std::int32_t offset,
    RawStream stream) {
  return wrap(core::fast::rope(
      operand(x),
      dims,
      /* traditional= */ false,
      base,
      /* scale= */ 1.0f,
      offset,
      std::nullopt,
      to_mlx(stream)));
}

std::unique_ptr<Array> softmax(const Array& array, RawStream stream) {
  return wrap(
      core::softmax(operand(array), -1, /* precise= */ true, to_mlx(stream)));
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

std::unique_ptr<Array> attention(
    rust::Slice<const ArrayRef> parts,
    float scale,
    bool causal,
    rust::Slice<const ArrayRef> mask,
    rust::Slice<const ArrayRef> sinks,
    RawStream stream) {
  if (parts.size() != 3) {
    throw std::invalid_argument(
        "mlx-overlay: attention takes queries, keys and values");
  }
  const auto& q = operand(parts[0].array);
  const auto& k = operand(parts[1].array);
  const auto& v = operand(parts[2].array);
  // MLX checks the other extents.
  if (k.ndim() == 4 && v.ndim() == 4 && k.shape(2) != v.shape(2)) {
    throw std::invalid_argument(
        "mlx-overlay: keys of " + std::to_string(k.shape(2)) +
        " positions, values of " + std::to_string(v.shape(2)));
  }
  auto given = [](rust::Slice<const ArrayRef> some) {
    return some.empty() ? std::nullopt : std::optional(operand(some[0].array));
  };
  return wrap(core::fast::scaled_dot_product_attention(
      q,
      k,
      v,
      scale,
      causal ? "causal" : "",
      given(mask),
      given(sinks),
      /* force_fused= */ false,
      to_mlx(stream)));
}

} // namespace mlx_overlay
