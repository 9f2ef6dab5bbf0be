// Checks before a dispatch runs and after a command buffer has run.
#pragma once

#include <optional>
#include <vector>

#include "runtime/commands.h"
#include "runtime/fault.h"

namespace metalsim {

// Arguments that are too short, stale or freed; threadgroup memory.
std::optional<Fault> check_before(const Dispatch& dispatch);

// Memory that was freed while the kernel ran, or written outside its buffers.
std::optional<Fault> check_after(const Dispatch& dispatch);

// Before the first dispatch that writes it, an output contains the host's data,
// or those of an earlier output: MLX reuses buffers, and a smaller output
// leaves the rest of one unchanged. Some of it may have the bits of the poison.
// Regions with a number below `fresh` were made before the last command buffer
// of the queue.
void note_data(const Dispatch& dispatch, std::uint64_t fresh);

// Records which buffers the dispatch reads and writes, for check_outputs.
void note_use(const Dispatch& dispatch);

// Outputs that are not fully written after all dispatches of a command buffer.
// A tail that MLX adds does not count: to whole pages, to four bytes.
std::optional<Fault> check_outputs(
    const std::vector<const Dispatch*>& dispatches);

} // namespace metalsim
