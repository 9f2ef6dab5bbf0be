#include "mlx-overlay-sys/src/neural.h"

#include <optional>
#include <stdexcept>
#include <string>

#include "mlx-overlay-sys/src/check.h"
#include "mlx-overlay-sys/src/convert.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/fast.h"
#include "mlx/ops.h"

namespace mlx_overlay {

namespace {

namespace core = mlx::core;

std::optional<core::array> given(rust::Slice<const ArrayRef> some) {
  return some.empty() ? std::nullopt : std::optional(operand(some[0].array));
}

} // namespace

std::unique_ptr<Array>
rms_norm(const Array& x, const Array& weight, float eps, RawStream stream) {
  check_bytes(operand(x).shape(), core::float32);
  return wrap(
      core::fast::rms_norm(operand(x), operand(weight), eps, to_mlx(stream)));
}

std::unique_ptr<Array> layer_norm(
    const Array& x,
    rust::Slice<const ArrayRef> weight,
    rust::Slice<const ArrayRef> bias,
    float eps,
    RawStream stream) {
  check_bytes(operand(x).shape(), core::float32);
  return wrap(core::fast::layer_norm(
      operand(x), given(weight), given(bias), eps, to_mlx(stream)));
}

std::unique_ptr<Array> rope(
    const Array& x,
    const Rotation& rotation,
    rust::Slice<const ArrayRef> frequencies,
    const Array& offset,
    RawStream stream) {
  auto freqs = given(frequencies);
  return wrap(core::fast::rope(
      operand(x),
      rotation.dims,
      rotation.traditional,
      freqs ? std::nullopt : std::optional(rotation.base),
      rotation.scale,
      operand(offset),
      freqs,
      to_mlx(stream)));
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
        "mlx-overlay: attention needs queries, keys and values");
  }
  const auto& q = operand(parts[0].array);
  const auto& k = operand(parts[1].array);
  const auto& v = operand(parts[2].array);
  // MLX checks the other extents.
  if (k.ndim() == 4 && v.ndim() == 4 && k.shape(2) != v.shape(2)) {
    throw std::invalid_argument(
        "mlx-overlay: keys have " + std::to_string(k.shape(2)) +
        " positions, but values have " + std::to_string(v.shape(2)));
  }
  // The CPU stores all scores. A GPU may not need to; its allocator throws if
  // memory is short.
  if (stream.device == DeviceKind::Cpu && q.ndim() == 4 && k.ndim() == 4) {
    check_bytes(
        {q.shape(0), q.shape(1), q.shape(2), k.shape(2)},
        core::result_type({q, k, v}));
  }
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
