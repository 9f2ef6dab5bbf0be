// How the rows of a dense product are computed: the part that decides. It
// includes nothing of MLX except row_policy.h, so that it can be used without a
// device.

#pragma once

#include "mlx/row_policy.h"

namespace mlx::core {

/// How a product of MATMUL or ADDMM is computed under a policy. Throws
/// std::invalid_argument if the problem is invalid.
mlx_row_dense_plan decide_dense(
    const mlx_row_problem& problem,
    mlx_row_policy policy);

} // namespace mlx::core
