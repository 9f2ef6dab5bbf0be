// Operations that reshape an array or select elements; lib.rs documents each
// function.

#pragma once

#include <cstdint>
#include <memory>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay {

std::unique_ptr<Array> full(
    rust::Slice<const std::int32_t> shape,
    const Array& value,
    RawStream stream);
std::unique_ptr<Array>
as_type(const Array& array, ElementKind kind, RawStream stream);
std::unique_ptr<Array> reshape(
    const Array& array,
    rust::Slice<const std::int32_t> shape,
    RawStream stream);
std::unique_ptr<Array> transpose(const Array& array, RawStream stream);
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
std::unique_ptr<Array> take(
    const Array& array,
    const Array& indices,
    std::int32_t axis,
    RawStream stream);
std::unique_ptr<Array> concatenate(
    rust::Slice<const ArrayRef> arrays,
    std::int32_t axis,
    RawStream stream);

} // namespace mlx_overlay
