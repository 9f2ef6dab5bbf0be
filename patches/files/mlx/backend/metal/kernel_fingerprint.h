// Holds the library of kernels against the code that asks it for kernels.

#pragma once

#include <string_view>

namespace mlx::core {

/// The name of the kernel that carries a tree is this and the tree's id. It is
/// looked up and never run.
inline constexpr std::string_view tree_kernel_prefix = "mlx_overlay_tree_";

/// Throws unless the device loaded kernels that were built from the tree that
/// this code was built from. What was found right is not looked at again; a
/// build that was not told its tree is not checked.
void check_kernels_of_build();

} // namespace mlx::core
