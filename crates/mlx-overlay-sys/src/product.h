// Products; lib.rs documents each function.

#pragma once

#include <cstdint>
#include <memory>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay {

std::unique_ptr<Array> matmul(const Array& a, const Array& b, RawStream stream);
std::unique_ptr<Array> addmm(
    const Array& c,
    const Array& a,
    const Array& b,
    float alpha,
    float beta,
    RawStream stream);
Quantized
quantize(const Array& w, const WeightFormat& format, RawStream stream);
std::unique_ptr<Array> dequantize(
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format,
    RawStream stream);
std::unique_ptr<Array> quantized_matmul(
    const Array& x,
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format,
    RawStream stream);
std::unique_ptr<Array> gather_matmul(
    const Array& a,
    const Array& b,
    rust::Slice<const ArrayRef> lhs,
    const Array& rhs,
    bool sorted,
    RawStream stream);
std::unique_ptr<Array> gather_quantized_matmul(
    const Array& x,
    rust::Slice<const ArrayRef> parts,
    rust::Slice<const ArrayRef> lhs,
    const Array& rhs,
    const WeightFormat& format,
    bool sorted,
    RawStream stream);

} // namespace mlx_overlay
