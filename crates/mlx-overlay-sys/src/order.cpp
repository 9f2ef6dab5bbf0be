#include "mlx-overlay-sys/src/order.h"

#include "mlx-overlay-sys/src/check.h"
#include "mlx-overlay-sys/src/convert.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/ops.h"

namespace mlx_overlay {

namespace core = mlx::core;

std::unique_ptr<Array> argmax(const Array& array, RawStream stream) {
  return wrap(
      core::argmax(operand(array), -1, /* keepdims= */ false, to_mlx(stream)));
}

std::unique_ptr<Array>
softmax(const Array& array, std::int32_t axis, RawStream stream) {
  return wrap(
      core::softmax(operand(array), axis, /* precise= */ true, to_mlx(stream)));
}

std::unique_ptr<Array>
sort(const Array& array, std::int32_t axis, RawStream stream) {
  return wrap(core::sort(operand(array), axis, to_mlx(stream)));
}

std::unique_ptr<Array> argpartition(
    const Array& array,
    std::int32_t kth,
    std::int32_t axis,
    RawStream stream) {
  return wrap(core::argpartition(operand(array), kth, axis, to_mlx(stream)));
}

std::unique_ptr<Array>
cumsum(const Array& array, std::int32_t axis, RawStream stream) {
  return wrap(core::cumsum(
      operand(array),
      axis,
      /* reverse= */ false,
      /* inclusive= */ true,
      to_mlx(stream)));
}

} // namespace mlx_overlay
