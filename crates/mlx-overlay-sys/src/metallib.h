// Where MLX's compiled kernels are.

#pragma once

#include <string>

namespace mlx_overlay {

// Tells MLX which metallib to load, the first that exists of:
//
//   1. what MLX_OVERLAY_METALLIB names: a file that is not there is an error;
//   2. mlx.metallib beside the program, or in Resources beside it;
//   3. lib/mlx.metallib of the prefix that this program was linked with.
//
// Where there is none, MLX looks at the path that it was built with; if that
// fails too, its error ends with what this returns: every place that was tried.
// Empty for an MLX without kernels.
std::string choose_metallib();

} // namespace mlx_overlay
