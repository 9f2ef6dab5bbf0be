#include "mlx/backend/metal/dense_rows.h"

#include "mlx/backend/metal/jit/includes.h"
#include "mlx/backend/metal/utils.h"

namespace mlx::core {

namespace metal {
const char* gemv_rows();
} // namespace metal

MTL::ComputePipelineState* get_gemv_rows_kernel(
    metal::Device& d,
    const std::string& name,
    const std::string& hash_name,
    const metal::MTLFCList& func_consts,
    const std::string& template_def) {
  auto lib = d.get_library(name, [&]() {
    std::string kernel_source;
    concatenate(kernel_source, metal::gemv(), metal::gemv_rows(), template_def);
    return kernel_source;
  });
  return d.get_kernel(name, lib, hash_name, func_consts);
}

} // namespace mlx::core
