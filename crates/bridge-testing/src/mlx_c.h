// The part of mlx-c that changes MLX's default stream, for tests of those who
// call it.

#pragma once

namespace mlx_overlay::testing {

// A linker takes the functions into a program that calls this.
void link_mlx_c();

} // namespace mlx_overlay::testing
