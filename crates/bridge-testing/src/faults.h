// Deliberate failures, and access to what the bridge hides, for tests.

#pragma once

#include <memory>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay::testing {

void throw_int();
void throw_text(rust::Str text);
bool memory_is_owned(const Array& array);
std::unique_ptr<Array> fails_when_run(const Array& input, RawStream stream);
void hook_answers(std::int32_t kind, std::int32_t rows);
void hook_throws();
void hook_is_gone();

} // namespace mlx_overlay::testing
