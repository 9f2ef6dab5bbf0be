// Dense products of several rows, each with the same bits as alone.

#pragma once

#include <string>
#include <vector>

#include "mlx/backend/metal/device.h"
#include "mlx/primitives.h"

namespace mlx::core {

/// Computes a product under the policy in force, if that requires rows that
/// keep their bits and the product is a block. Otherwise returns false and has
/// changed nothing. No operand may be empty.
bool dense_rows(
    Matmul& primitive,
    const std::vector<array>& inputs,
    array& out);
bool dense_rows(AddMM& primitive, const std::vector<array>& inputs, array& out);

/// The pipeline of gemv_rows or gemv_t_rows: from the library built ahead of
/// time, or compiled now from its template's definition.
MTL::ComputePipelineState* get_gemv_rows_kernel(
    metal::Device& d,
    const std::string& name,
    const std::string& hash_name,
    const metal::MTLFCList& func_consts,
    const std::string& template_def);

} // namespace mlx::core
