#include "mlx-overlay-sys/src/random.h"

#include "mlx-overlay-sys/src/check.h"
#include "mlx-overlay-sys/src/convert.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/random.h"

namespace mlx_overlay {

namespace core = mlx::core;

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
  // Drawn as u32 and computed as f32.
  check_bytes(extents(shape), core::float32);
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
  check_bytes(operand(logits).shape(), core::float32);
  return wrap(core::random::categorical(
      operand(logits), -1, operand(key), to_mlx(stream)));
}

} // namespace mlx_overlay
