// Checks of arguments that MLX does not make: without them it divides by zero
// or reads past an array's end. All functions here throw std::invalid_argument.

#pragma once

#include "mlx-overlay-sys/src/bridge.h"
#include "mlx/array.h"
#include "mlx/stream.h"

namespace mlx_overlay {

// The array inside the bridge's; it must have elements.
const mlx::core::array& operand(const Array& array);

// Checks that MLX has kernels for the format.
void check_format(const WeightFormat& format);

// Checks that a matrix can be quantized.
void check_unquantized(const mlx::core::array& w, const WeightFormat& format);

// Checks the parts of a matrix: packed values, scales and, for affine, biases.
void check_quantized(
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format);

// Checks that x can be multiplied with the transpose of such a matrix.
void check_factor(
    const mlx::core::array& x,
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format);

// Checks that x can be multiplied with the transposes of such matrices, which
// are stacked and from which a gather picks.
void check_picked(
    const mlx::core::array& x,
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format);

// Bounds indices to `length` entries: those past the end become the last entry,
// those before the beginning the first. Negative ones count from the end. MLX
// reads wherever an index points.
mlx::core::array within(
    const mlx::core::array& indices,
    std::int64_t entries,
    mlx::core::Stream stream);

// Checks that a product of these extents can be indexed in 32 bits, as in MLX.
void check_indexable(std::int64_t m, std::int64_t n, std::int64_t k);

} // namespace mlx_overlay
