// Gated delta over several tokens, each with the bits that it has alone.

#pragma once

#include <vector>

#include "mlx/array.h"
#include "mlx/stream.h"

namespace mlx::core::fast {

/// The number of tokens by which to choose how many a kernel takes at once:
/// all, or one if the policy in force asks for rows that keep their bits and
/// the tokens are a block.
int gated_delta_rows(Stream s, const std::vector<array>& inputs);

} // namespace mlx::core::fast
