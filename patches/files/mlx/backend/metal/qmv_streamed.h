// The host side of kernels/qmv_streamed.h.

#pragma once

#include "mlx/backend/metal/device.h"
#include "mlx/backend/metal/qmv_dispatch.h"

namespace mlx::core {

/// Dispatches an order-preserving kernel: out = x times the transposed
/// weights, affine, for a call whose path is MLX_QMV_PATH_STREAMED.
void qmv_streamed(
    const QmvCall& call,
    const array& x,
    const array& w,
    const array& scales,
    const array& biases,
    array& out,
    const Stream& s);

/// The pipeline of a streamed kernel: from the library that was built ahead, or
/// compiled now from its template's definition.
MTL::ComputePipelineState* get_qmv_streamed_kernel(
    metal::Device& d,
    const std::string& name,
    const std::string& template_def);

} // namespace mlx::core
