// The host side of kernels/qmv_streamed.h and kernels/fp_qmv_streamed.h.

#pragma once

#include <optional>

#include "mlx/backend/metal/device.h"
#include "mlx/backend/metal/qmv_dispatch.h"

namespace mlx::core {

/// Dispatches an order-preserving kernel: out = x times the transposed weights,
/// for a call that is_streamed(). Affine weights have biases, nvfp4 weights may
/// have a global scale.
void qmv_streamed(
    const QmvCall& call,
    const array& x,
    const array& w,
    const array& scales,
    const std::optional<array>& biases,
    const std::optional<array>& global_scale,
    array& out,
    const Stream& s);

/// The pipeline of a streamed kernel: from the library built ahead of time, or
/// compiled now from its template's definition.
MTL::ComputePipelineState* get_qmv_streamed_kernel(
    metal::Device& d,
    const std::string& name,
    const std::string& template_def,
    bool affine);

} // namespace mlx::core
