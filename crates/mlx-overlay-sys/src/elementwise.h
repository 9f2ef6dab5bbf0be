// Element-wise operations; lib.rs documents each function.

#pragma once

#include <cstdint>
#include <memory>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay {

enum class Comparison : std::uint8_t;

std::unique_ptr<Array> add(const Array& a, const Array& b, RawStream stream);
std::unique_ptr<Array>
multiply(const Array& a, const Array& b, RawStream stream);
std::unique_ptr<Array> sigmoid(const Array& array, RawStream stream);
std::unique_ptr<Array>
compare(const Array& a, const Array& b, Comparison how, RawStream stream);
std::unique_ptr<Array> select(
    const Array& condition,
    const Array& a,
    const Array& b,
    RawStream stream);

} // namespace mlx_overlay
