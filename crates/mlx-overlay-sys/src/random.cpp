#include "mlx-overlay-sys/src/random.h"

#include "mlx-overlay-sys/src/check.h"
#include "mlx-overlay-sys/src/convert.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/random.h"

namespace mlx_overlay {

namespace {

namespace core = mlx::core;

core::Shape extents(rust::Slice<const std::int32_t> values) {
  return core::Shape(values.begin(), values.end());
}

} // namespace

std::unique_ptr<Array>
random_split(const Array& key, std::int32_t count, RawStream stream) {
  return wrap(core::random::split(operand(key), count, to_mlx(stream)));
}

std::unique_ptr<Array> random_uniform(
    rust::Slice<const std::int32_t> shape,
    float low,
    float high,
    ElementKind kind,
    const Array& key,
    RawStream stream) {
  return wrap(core::random::uniform(
      core::array(low),
      core::array(high),
      extents(shape),
      to_mlx(kind),
      operand(key),
      to_mlx(stream)));
}

std::unique_ptr<Array>
random_categorical(const Array& logits, const Array& key, RawStream stream) {
  return wrap(core::random::categorical(
      operand(logits), -1, operand(key), to_mlx(stream)));
}

} // namespace mlx_overlay
