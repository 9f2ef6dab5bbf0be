// Transformer operations other than products; lib.rs documents each function.

#pragma once

#include <cstdint>
#include <memory>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay {

struct Rotation;

std::unique_ptr<Array>
rms_norm(const Array& x, const Array& weight, float eps, RawStream stream);
std::unique_ptr<Array> layer_norm(
    const Array& x,
    rust::Slice<const ArrayRef> weight,
    rust::Slice<const ArrayRef> bias,
    float eps,
    RawStream stream);
std::unique_ptr<Array> rope(
    const Array& x,
    const Rotation& rotation,
    rust::Slice<const ArrayRef> frequencies,
    const Array& offset,
    RawStream stream);
std::unique_ptr<Array> attention(
    rust::Slice<const ArrayRef> parts,
    float scale,
    bool causal,
    rust::Slice<const ArrayRef> mask,
    rust::Slice<const ArrayRef> sinks,
    RawStream stream);

} // namespace mlx_overlay
