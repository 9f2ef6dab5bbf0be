// Failures on purpose, and looks behind the bridge, for tests.

#pragma once

#include <memory>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay {

void throw_int();
void throw_text(rust::Str text);
bool memory_is_owned(const Array& array);
std::unique_ptr<Array> fails_when_run(const Array& input, RawStream stream);

} // namespace mlx_overlay
