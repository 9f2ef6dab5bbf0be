#include "mlx/backend/metal/qmv_streamed.h"

namespace mlx::core {

MTL::ComputePipelineState* get_qmv_streamed_kernel(
    metal::Device& d,
    const std::string& name,
    const std::string&,
    bool) {
  return d.get_kernel(name);
}

} // namespace mlx::core
