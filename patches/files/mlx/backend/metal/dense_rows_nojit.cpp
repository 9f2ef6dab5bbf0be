#include "mlx/backend/metal/dense_rows.h"

namespace mlx::core {

MTL::ComputePipelineState* get_gemv_rows_kernel(
    metal::Device& d,
    const std::string& name,
    const std::string& hash_name,
    const metal::MTLFCList& func_consts,
    const std::string&) {
  return d.get_kernel(name, hash_name, func_consts);
}

} // namespace mlx::core
