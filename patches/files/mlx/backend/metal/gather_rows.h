// Gathered products of several picks or rows, each with the bits that it has
// alone.

#pragma once

#include <vector>

#include "mlx/primitives.h"

namespace mlx::core {

/// Computes a gather under the policy in force, if that asks for rows that keep
/// their bits, the gather is a block, and MLX would take a kernel in which rows
/// share sums. Otherwise returns false and has touched nothing. No operand may
/// be empty.
bool gather_rows(
    GatherMM& primitive,
    const std::vector<array>& inputs,
    array& out);

} // namespace mlx::core
