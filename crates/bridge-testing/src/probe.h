// Products and streams that the safe interface does not offer, for tests of
// policies.

#pragma once

#include <cstdint>
#include <memory>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay::testing {

rust::Vec<rust::String> probe_cases();
std::int64_t
probe_rows_that_differ(rust::Str name, std::int32_t rows, RawStream stream);
void probe_together(rust::Str name, std::int32_t rows, RawStream stream);
rust::Vec<std::int64_t> probe_compiled(RawStream first, RawStream second);
rust::Vec<std::int64_t> probe_compiled_attention(RawStream stream);
std::unique_ptr<Array> probe_imported(rust::Str file, RawStream stream);
rust::String probe_on_another_thread(RawStream stream);
std::int32_t probe_thread_local(RawStream stream);

} // namespace mlx_overlay::testing
