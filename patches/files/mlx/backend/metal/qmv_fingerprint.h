// Holds the library of kernels against the code that asks it for kernels.

#pragma once

namespace mlx::core {

/// Throws unless the device loaded kernels that were built from the tree that
/// this code was built from. What was found right is not looked at again; a
/// build that was not told its tree is not checked.
void qmv_check_kernels();

} // namespace mlx::core
