#include "mlx-overlay-sys/src/ops.h"

#include <string>

#include "mlx-overlay-sys/src/convert.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/fast.h"
#include "mlx/ops.h"

namespace mlx_overlay {

namespace {

namespace core = mlx::core;

core::Shape extents(rust::Slice<const std::int32_t> values) {
  return core::Shape(values.begin(), values.end());
}

} // namespace

std::unique_ptr<Array>
as_type(const Array& array, ElementKind kind, RawStream stream) {
  return wrap(core::astype(array.get(), to_mlx(kind), to_mlx(stream)));
}

std::unique_ptr<Array> reshape(
    const Array& array,
    rust::Slice<const std::int32_t> shape,
    RawStream stream) {
  return wrap(core::reshape(array.get(), extents(shape), to_mlx(stream)));
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

std::unique_ptr<Array>
take_rows(const Array& array, const Array& indices, RawStream stream) {
  return wrap(core::take(array.get(), indices.get(), 0, to_mlx(stream)));
}

std::unique_ptr<Array> add(const Array& a, const Array& b, RawStream stream) {
  return wrap(core::add(a.get(), b.get(), to_mlx(stream)));
}

std::unique_ptr<Array>
multiply(const Array& a, const Array& b, RawStream stream) {
  return wrap(core::multiply(a.get(), b.get(), to_mlx(stream)));
}

std::unique_ptr<Array> sigmoid(const Array& array, RawStream stream) {
  return wrap(core::sigmoid(array.get(), to_mlx(stream)));
}

std::unique_ptr<Array> argmax(const Array& array, RawStream stream) {
  return wrap(
      core::argmax(array.get(), -1, /* keepdims= */ false, to_mlx(stream)));
}

std::unique_ptr<Array>
rms_norm(const Array& x, const Array& weight, float eps, RawStream stream) {
  return wrap(core::fast::rms_norm(x.get(), weight.get(), eps, to_mlx(stream)));
}

std::unique_ptr<Array> rope(
    const Array& x,
    std::int32_t dims,
    float base,
    std::int32_t offset,
    RawStream stream) {
  return wrap(core::fast::rope(
      x.get(),
      dims,
      /* traditional= */ false,
      base,
      /* scale= */ 1.0f,
      offset,
      std::nullopt,
      to_mlx(stream)));
}

std::unique_ptr<Array> attention(
    const Array& queries,
    const Array& keys,
    const Array& values,
    float scale,
    bool causal,
    RawStream stream) {
  return wrap(core::fast::scaled_dot_product_attention(
      queries.get(),
      keys.get(),
      values.get(),
      scale,
      causal ? "causal" : "",
      {},
      {},
      /* force_fused= */ false,
      to_mlx(stream)));
}

} // namespace mlx_overlay
