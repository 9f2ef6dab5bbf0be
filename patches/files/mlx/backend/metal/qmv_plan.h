// Which kernel a quantized product takes: the part that decides. It includes
// nothing of MLX except row_policy.h, so that it can be used without a device;
// MLX's own decisions are arguments.

#pragma once

#include "mlx/row_policy.h"

namespace mlx::core {

/// Throws std::invalid_argument if the problem is invalid.
void check_problem(const mlx_row_problem& problem);

/// Throws std::invalid_argument at the first invalid entry.
void check_routes(const mlx_row_route* routes, size_t count);

/// The decision for a product under a policy.
mlx_row_plan decide_qmv(
    const mlx_row_problem& problem,
    const mlx_row_upstream& upstream,
    mlx_row_policy policy,
    const mlx_row_route* routes,
    size_t route_count);

} // namespace mlx::core
