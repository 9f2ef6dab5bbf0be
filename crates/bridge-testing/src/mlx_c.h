// The part of mlx-c that changes MLX's default stream, for tests of its
// callers.

#pragma once

namespace mlx_overlay::testing {

// A linker includes the functions in a program that calls this.
void link_mlx_c();

} // namespace mlx_overlay::testing
