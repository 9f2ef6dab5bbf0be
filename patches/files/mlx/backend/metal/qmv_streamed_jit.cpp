#include "mlx/backend/metal/qmv_streamed.h"

#include "mlx/backend/metal/jit/includes.h"
#include "mlx/backend/metal/utils.h"

namespace mlx::core {

namespace metal {
const char* qmv_streamed();
const char* fp_qmv_streamed();
#if !__has_include("mlx/backend/metal/kernels/fp_qmv_streamed.h")
// Those kernels come with a separate patch; without it no plan names one.
const char* fp_qmv_streamed() {
  return "";
}
#endif
} // namespace metal

// The text of quantized.h comes first: qmv_streamed.h needs it but does not
// include it, because the source would then contain it twice. The same holds
// for the fp modes.
MTL::ComputePipelineState* get_qmv_streamed_kernel(
    metal::Device& d,
    const std::string& name,
    const std::string& template_def,
    bool affine) {
  auto lib = d.get_library(name, [&]() {
    std::string kernel_source;
    concatenate(
        kernel_source,
        metal::utils(),
        metal::gemm(),
        metal::quantized_utils(),
        affine ? metal::quantized() : metal::fp_quantized(),
        affine ? metal::qmv_streamed() : metal::fp_qmv_streamed(),
        template_def);
    return kernel_source;
  });
  return d.get_kernel(name, lib);
}

} // namespace mlx::core
