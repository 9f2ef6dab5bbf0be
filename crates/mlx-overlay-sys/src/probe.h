// Products that the safe interface does not offer, computed together and row by
// row, for tests of policies.

#pragma once

#include <cstdint>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay {

rust::Vec<rust::String> probe_cases();
std::int64_t
probe_rows_that_differ(rust::Str name, std::int32_t rows, RawStream stream);
rust::Vec<std::int64_t> probe_compiled(RawStream first, RawStream second);

} // namespace mlx_overlay
