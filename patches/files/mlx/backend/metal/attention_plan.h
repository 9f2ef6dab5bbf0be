// How each row of attention is computed alone, and which rows share a dispatch:
// the part that decides. It includes nothing of MLX except row_policy.h, so
// that it can be used without a device.

#pragma once

#include <vector>

#include "mlx/row_policy.h"

namespace mlx::core {

/// The most rows of a group: the limit of MLX's kernels for vectors.
inline constexpr int attention_group_rows = 8;

/// The keys that row `row` of the problem sees.
int attention_keys(
    const mlx_row_problem& problem,
    const mlx_row_attention& call,
    int row);

/// One entry per row. `unfused` has one value per row: whether MLX has no fused
/// kernel for it alone. Throws std::invalid_argument if problem or call are
/// invalid.
std::vector<mlx_row_attention_row> plan_attention(
    const mlx_row_problem& problem,
    const mlx_row_attention& call,
    int kind,
    const uint8_t* unfused);

} // namespace mlx::core
