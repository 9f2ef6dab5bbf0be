// Operations under a row policy: called by the back-end's files.

#pragma once

#include <vector>

#include "mlx/array.h"
#include "mlx/primitives.h"

namespace mlx::core {

/// Computes a product whose rows keep their bits, or one that MLX computes row
/// by row anyway, with the weights read once. Otherwise returns false, and MLX
/// computes it. `one_row_takes_qmv`: whether MLX computes one row with qmv.
bool quantized_rows(
    QuantizedMatmul& primitive,
    const std::vector<array>& inputs,
    const array& x,
    array& out,
    bool one_row_takes_qmv);

/// Whether the policy requires that each pick of a gather is computed as if it
/// were alone, whatever the number of picks and their order. Throws if MLX has
/// no kernel that does so for several rows per pick. `has_qmv`: whether qmv can
/// compute the gather.
bool computes_picks_alone(
    GatherQMM& primitive,
    const std::vector<array>& inputs,
    const array& x,
    const array& out,
    bool has_qmv);

/// Computes a product whose rows keep their bits, or returns false.
bool dense_rows(
    Matmul& primitive,
    const std::vector<array>& inputs,
    array& out);
bool dense_rows(AddMM& primitive, const std::vector<array>& inputs, array& out);
bool gather_rows(
    GatherMM& primitive,
    const std::vector<array>& inputs,
    array& out);

} // namespace mlx::core
