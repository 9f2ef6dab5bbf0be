// Which kernel a quantized product takes: the part that decides. It includes
// nothing of MLX but row_policy.h, so that anyone may ask it without a device;
// what MLX itself decides comes in as an answer.

#pragma once

#include "mlx/row_policy.h"

namespace mlx::core {

/// Throws std::invalid_argument unless the problem is one.
void check_problem(const mlx_row_problem& problem);

/// Throws std::invalid_argument at the first entry that makes no sense.
void check_routes(const mlx_row_route* routes, size_t count);

/// What a product takes under a policy.
mlx_row_plan decide_qmv(
    const mlx_row_problem& problem,
    const mlx_row_upstream& upstream,
    mlx_row_policy policy,
    const mlx_row_route* routes,
    size_t route_count);

} // namespace mlx::core
