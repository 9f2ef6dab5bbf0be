#include "mlx/backend/metal/kernel_record.h"

#include "mlx/backend/metal/kernel_fingerprint.h"
#include "mlx/row_policy.h"

namespace mlx::core::metal {

namespace {

thread_local bool recording = false;
thread_local std::string recorded;

} // namespace

void record_kernel(const std::string& name) {
  if (recording && name.rfind(tree_kernel_prefix, 0) != 0) {
    recorded.append(name).push_back('\n');
  }
}

} // namespace mlx::core::metal

using namespace mlx::core;

extern "C" {

void mlx_row_record_kernels(void) {
  metal::recording = true;
  metal::recorded.clear();
}

const char* mlx_row_recorded_kernels(void) {
  metal::recording = false;
  return metal::recorded.c_str();
}

} // extern "C"
