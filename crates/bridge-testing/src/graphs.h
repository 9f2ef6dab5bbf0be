// Graphs that the safe interface cannot build, for tests of the check of
// operations.

#pragma once

#include <cstdint>
#include <memory>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay::testing {

std::unique_ptr<Array> probe_graph(rust::Str name, RawStream stream);
std::int64_t probe_sums_that_differ(
    std::int32_t sums,
    std::int32_t terms,
    bool column,
    RawStream stream);

} // namespace mlx_overlay::testing
