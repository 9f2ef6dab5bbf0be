#include "mlx-overlay-sys/src/memory.h"

#include <exception>
#include <future>
#include <mutex>

#include "mlx-overlay-sys/src/evaluation.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/memory.h"
#include "mlx/stream.h"

namespace mlx_overlay {

namespace {

namespace core = mlx::core;

// In a CPU-only build MLX waits here for the streams of all threads and throws
// their errors, each once. The failed evaluations still notice through their
// events, provided that no evaluation is being started meanwhile and that MLX
// waits before it throws. On its main thread it does not wait.
template <typename Function>
auto beside_evaluations(Function function) {
#ifdef MLX_OVERLAY_METAL
  return function();
#else
  std::unique_lock lock(starts());
  auto elsewhere = std::async(std::launch::async, [&] {
    // A stream has at most one error, and gets no new work meanwhile.
    for (auto errors = core::get_streams().size();; --errors) {
      try {
        return function();
      } catch (const std::exception&) {
        if (errors == 0) {
          throw;
        }
      }
    }
  });
  return elsewhere.get();
#endif
}

} // namespace

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
  return beside_evaluations([bytes] { return core::set_cache_limit(bytes); });
}

void clear_cache() {
  beside_evaluations([] { core::clear_cache(); });
}

} // namespace mlx_overlay
