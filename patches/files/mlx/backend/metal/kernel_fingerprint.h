// Compares the library of kernels with the code that uses it.

#pragma once

#include <string_view>

namespace mlx::core {

/// The kernel that carries a tree is named by this prefix and the tree's id. It
/// is looked up but never run.
inline constexpr std::string_view tree_kernel_prefix = "mlx_overlay_tree_";

/// Throws unless the device loaded kernels that were built from the same tree
/// as this code. A successful check is not repeated. A build without a tree id
/// is not checked.
void check_kernels_of_build();

} // namespace mlx::core
