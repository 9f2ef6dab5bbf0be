#include "mlx-overlay-sys/src/memory.h"

#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/memory.h"

namespace mlx_overlay {

namespace core = mlx::core;

MemoryUse memory_use() {
  return {
      core::get_active_memory(),
      core::get_peak_memory(),
      core::get_cache_memory(),
      core::get_memory_limit()};
}

void reset_peak_memory() {
  core::reset_peak_memory();
}

std::size_t set_memory_limit(std::size_t bytes) {
  return core::set_memory_limit(bytes);
}

std::size_t set_cache_limit(std::size_t bytes) {
  return core::set_cache_limit(bytes);
}

void clear_cache() {
  core::clear_cache();
}

} // namespace mlx_overlay
