// Operations under a row policy: what the back-end's files ask, and rows one
// after the other if the kernels for several add in another order.

#pragma once

#include <vector>

#include "mlx/array.h"
#include "mlx/primitives.h"

namespace mlx::core {

/// Computes a product whose rows keep their bits, or one that MLX computes row
/// by row anyway, with the weights read once. Returns false if MLX is to
/// compute it. `one_row_takes_qmv`: what MLX has for one row of one product is
/// qmv.
bool quantized_rows(
    QuantizedMatmul& primitive,
    const std::vector<array>& inputs,
    const array& x,
    array& out,
    bool one_row_takes_qmv);

/// Whether each pick of a gather is to be computed as it is alone, whatever the
/// number of picks and their order. Throws if MLX has no kernel that does so
/// for several rows a pick; `has_qmv`: it has qmv.
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
