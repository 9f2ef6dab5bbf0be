#include "mlx/backend/metal/qmv_streamed.h"

#include "mlx/backend/metal/jit/includes.h"
#include "mlx/backend/metal/utils.h"

namespace mlx::core {

namespace metal {
const char* qmv_streamed();
} // namespace metal

// The text of quantized.h comes first: qmv_streamed.h builds on it and does not
// include it, as it would then stand in the source twice.
MTL::ComputePipelineState* get_qmv_streamed_kernel(
    metal::Device& d,
    const std::string& name,
    const std::string& template_def) {
  auto lib = d.get_library(name, [&]() {
    std::string kernel_source;
    concatenate(
        kernel_source,
        metal::utils(),
        metal::gemm(),
        metal::quantized_utils(),
        metal::quantized(),
        metal::qmv_streamed(),
        template_def);
    return kernel_source;
  });
  return d.get_kernel(name, lib);
}

} // namespace mlx::core
