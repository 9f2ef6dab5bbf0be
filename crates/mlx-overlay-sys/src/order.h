// Operations along a dimension; lib.rs documents each function.

#pragma once

#include <cstdint>
#include <memory>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay {

std::unique_ptr<Array> argmax(const Array& array, RawStream stream);
std::unique_ptr<Array>
softmax(const Array& array, std::int32_t axis, RawStream stream);
std::unique_ptr<Array>
sort(const Array& array, std::int32_t axis, RawStream stream);
std::unique_ptr<Array> argpartition(
    const Array& array,
    std::int32_t kth,
    std::int32_t axis,
    RawStream stream);
std::unique_ptr<Array>
cumsum(const Array& array, std::int32_t axis, RawStream stream);

} // namespace mlx_overlay
