// Random numbers from keys; lib.rs documents each function.

#pragma once

#include <cstdint>
#include <memory>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay {

std::unique_ptr<Array>
random_split(const Array& key, std::int32_t count, RawStream stream);
std::unique_ptr<Array> random_uniform(
    rust::Slice<const std::int32_t> shape,
    float low,
    float high,
    ElementKind kind,
    const Array& key,
    RawStream stream);
std::unique_ptr<Array>
random_categorical(const Array& logits, const Array& key, RawStream stream);

} // namespace mlx_overlay
