// What a transformer needs besides products; see lib.rs for what each function
// does.

#pragma once

#include <cstdint>
#include <memory>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay {

std::unique_ptr<Array>
as_type(const Array& array, ElementKind kind, RawStream stream);
std::unique_ptr<Array> reshape(
    const Array& array,
    rust::Slice<const std::int32_t> shape,
    RawStream stream);
std::unique_ptr<Array> transpose_axes(
    const Array& array,
    rust::Slice<const std::int32_t> axes,
    RawStream stream);
std::unique_ptr<Array> slice(
    const Array& array,
    rust::Slice<const std::int32_t> start,
    rust::Slice<const std::int32_t> stop,
    RawStream stream);
std::unique_ptr<Array> slice_update(
    const Array& array,
    const Array& update,
    rust::Slice<const std::int32_t> start,
    rust::Slice<const std::int32_t> stop,
    RawStream stream);
std::unique_ptr<Array> take_rows(
    const Array& array,
    rust::Slice<const std::uint32_t> indices,
    RawStream stream);
std::unique_ptr<Array> add(const Array& a, const Array& b, RawStream stream);
std::unique_ptr<Array>
multiply(const Array& a, const Array& b, RawStream stream);
std::unique_ptr<Array> sigmoid(const Array& array, RawStream stream);
std::unique_ptr<Array> argmax(const Array& array, RawStream stream);
std::unique_ptr<Array>
rms_norm(const Array& x, const Array& weight, float eps, RawStream stream);
std::unique_ptr<Array> rope(
    const Array& x,
    std::int32_t dims,
    float base,
    std::int32_t offset,
    RawStream stream);
std::unique_ptr<Array> softmax(const Array& array, RawStream stream);
std::unique_ptr<Array> addmm(
    const Array& c,
    const Array& a,
    const Array& b,
    float alpha,
    float beta,
    RawStream stream);
std::unique_ptr<Array> attention(
    rust::Slice<const ArrayRef> parts,
    float scale,
    bool causal,
    rust::Slice<const ArrayRef> mask,
    rust::Slice<const ArrayRef> sinks,
    RawStream stream);

} // namespace mlx_overlay
