#include "mlx-overlay-sys/src/shape.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "mlx-overlay-sys/src/check.h"
#include "mlx-overlay-sys/src/convert.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/ops.h"
#include "mlx/utils.h"

namespace mlx_overlay {

namespace core = mlx::core;

std::unique_ptr<Array> full(
    rust::Slice<const std::int32_t> shape,
    const Array& value,
    RawStream stream) {
  auto s = to_mlx(stream);
  return wrap(core::full(extents(shape), operand(value), s));
}

std::unique_ptr<Array>
as_type(const Array& array, ElementKind kind, RawStream stream) {
  return wrap(core::astype(operand(array), to_mlx(kind), to_mlx(stream)));
}

std::unique_ptr<Array> reshape(
    const Array& array,
    rust::Slice<const std::int32_t> shape,
    RawStream stream) {
  const auto& value = operand(array);
  // MLX would infer an extent of -1, and divide by the others.
  if (std::any_of(shape.begin(), shape.end(), [](int e) { return e < 1; })) {
    throw std::invalid_argument("mlx-overlay: extents must be at least 1");
  }
  return wrap(core::reshape(value, extents(shape), to_mlx(stream)));
}

std::unique_ptr<Array> transpose(const Array& array, RawStream stream) {
  return wrap(core::transpose(array.get(), to_mlx(stream)));
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
          "mlx-overlay: index " + std::to_string(index) +
          " is out of range: the number of entries is " +
          std::to_string(length));
    }
  }
  if (indices.empty()) {
    throw std::invalid_argument("mlx-overlay: no indices were given");
  }
  const core::array list(
      indices.data(),
      {core::safe_cast(indices.size(), "take_rows")},
      core::uint32);
  return wrap(core::take(value, list, 0, to_mlx(stream)));
}

std::unique_ptr<Array> take(
    const Array& array,
    const Array& indices,
    std::int32_t axis,
    RawStream stream) {
  auto s = to_mlx(stream);
  const auto& value = operand(array);
  return wrap(core::take(
      value, within(operand(indices), value.shape(axis), s), axis, s));
}

std::unique_ptr<Array> concatenate(
    rust::Slice<const ArrayRef> arrays,
    std::int32_t axis,
    RawStream stream) {
  std::vector<core::array> values;
  values.reserve(arrays.size());
  for (const auto& reference : arrays) {
    values.push_back(operand(reference.array));
  }
  return wrap(core::concatenate(std::move(values), axis, to_mlx(stream)));
}

} // namespace mlx_overlay
