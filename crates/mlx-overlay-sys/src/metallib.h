// Finds MLX's compiled kernels.

#pragma once

#include <string>

namespace mlx_overlay {

// Sets the metallib that MLX loads: the first of these that exists.
//
//   1. the file given by MLX_OVERLAY_METALLIB: a missing file is an error;
//   2. mlx.metallib next to the program, or in Resources next to it;
//   3. lib/mlx.metallib in the prefix that this program was linked with.
//
// If there is none, MLX tries the path that it was built with. If that fails
// too, its error ends with the string returned here, which lists all places
// that were tried. The string is empty for an MLX without kernels.
std::string choose_metallib();

} // namespace mlx_overlay
