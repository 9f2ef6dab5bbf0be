// The names of the kernels that a thread asks its device for.

#pragma once

#include <string>

namespace mlx::core::metal {

/// Takes the name down if the calling thread records names.
void record_kernel(const std::string& name);

} // namespace mlx::core::metal
