// Gated delta over several tokens, each with the same bits as alone.

#pragma once

#include <vector>

#include "mlx/array.h"
#include "mlx/stream.h"

namespace mlx::core::fast {

/// The number of tokens from which a kernel's number of tokens at once is
/// chosen: all, or one if the policy in force requires rows that keep their
/// bits and the tokens are a block.
int gated_delta_rows(Stream s, const std::vector<array>& inputs);

} // namespace mlx::core::fast
