// Gathered products of several picks or rows, each with the same bits as alone.

#pragma once

#include <vector>

#include "mlx/primitives.h"

namespace mlx::core {

/// Computes a gather under the policy in force, if that requires rows that keep
/// their bits, the gather is a block, and MLX would use a kernel in which rows
/// share sums. Otherwise returns false and has changed nothing. No operand may
/// be empty.
bool gather_rows(
    GatherMM& primitive,
    const std::vector<array>& inputs,
    array& out);

} // namespace mlx::core
