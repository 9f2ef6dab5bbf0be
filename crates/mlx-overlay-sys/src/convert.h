// Conversions between the bridge's types and MLX's.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "mlx-overlay-sys/src/bridge.h"
#include "mlx/array.h"
#include "mlx/device.h"
#include "mlx/primitives.h"
#include "mlx/stream.h"

namespace mlx_overlay {

mlx::core::Device to_mlx(DeviceKind device);
mlx::core::Dtype to_mlx(ElementKind kind);
mlx::core::Stream to_mlx(RawStream stream);
RawStream from_mlx(mlx::core::Stream stream);

inline mlx::core::Shape extents(rust::Slice<const std::int32_t> values) {
  return {values.begin(), values.end()};
}

// The mode of a checked format.
mlx::core::QuantizationMode mode_of(const WeightFormat& format);

// The error text for a failed allocation of this many bytes.
std::string no_memory(std::size_t bytes);

// Rejects a size that is larger than MLX's memory limit.
void check_bytes(const mlx::core::Shape& shape, mlx::core::Dtype dtype);

// Rejects an array that is larger than MLX's memory limit: its CPU allocator
// does not report a failure, and kernels would write through null.
std::unique_ptr<Array> wrap(mlx::core::array value);

} // namespace mlx_overlay
