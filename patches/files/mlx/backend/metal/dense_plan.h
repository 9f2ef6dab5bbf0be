// How the rows of a dense product are computed: the part that decides. It
// includes nothing of MLX but row_policy.h, so that anyone may ask it without a
// device.

#pragma once

#include "mlx/row_policy.h"

namespace mlx::core {

/// What a product of MATMUL or ADDMM takes under a policy. Throws
/// std::invalid_argument unless the problem is one.
mlx_row_dense_plan decide_dense(
    const mlx_row_problem& problem,
    mlx_row_policy policy);

} // namespace mlx::core
