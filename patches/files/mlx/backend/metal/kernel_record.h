// The names of the kernels that a thread requests from its device.

#pragma once

#include <string>

namespace mlx::core::metal {

/// Records the name if the calling thread records names.
void record_kernel(const std::string& name);

} // namespace mlx::core::metal
