// Checks of arguments that MLX does not make: without them it divides by zero
// or reads past an array's end. All these functions throw
// std::invalid_argument.

#pragma once

#include "mlx-overlay-sys/src/bridge.h"
#include "mlx/array.h"
#include "mlx/stream.h"

namespace mlx_overlay {

// The MLX array, which must have elements.
const mlx::core::array& operand(const Array& array);

// Checks that MLX has kernels for the format.
void check_format(const WeightFormat& format);

// Checks that a matrix can be quantized.
void check_unquantized(const mlx::core::array& w, const WeightFormat& format);

// Checks the parts of a matrix: packed values, scales and, for affine, biases.
void check_quantized(
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format);

// Checks that x can be multiplied by the transpose of such a matrix.
void check_factor(
    const mlx::core::array& x,
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format);

// Checks that x can be multiplied by the transposes of such matrices, stacked,
// from which a gather picks.
void check_picked(
    const mlx::core::array& x,
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format);

// Clamps indices to `length` entries: past the end to the last entry, before
// the beginning to the first. Negative ones count from the end. MLX would read
// wherever an index points.
mlx::core::array within(
    const mlx::core::array& indices,
    std::int64_t entries,
    mlx::core::Stream stream);

// Checks that 32-bit integers can index a product of these extents, as in MLX.
void check_indexable(std::int64_t m, std::int64_t n, std::int64_t k);

} // namespace mlx_overlay
