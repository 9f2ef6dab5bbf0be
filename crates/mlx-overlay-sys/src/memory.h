// The memory of MLX's allocator; lib.rs documents each function.

#pragma once

#include <cstdint>
#include <memory>

#include "mlx-overlay-sys/src/bridge.h"

namespace mlx_overlay {

struct MemoryUse;

MemoryUse memory_use();
void reset_peak_memory();
std::size_t set_memory_limit(std::size_t bytes);
std::size_t set_cache_limit(std::size_t bytes);
void clear_cache();

} // namespace mlx_overlay
