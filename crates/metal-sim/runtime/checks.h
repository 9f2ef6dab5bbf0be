// What is looked at before a dispatch runs and after a command buffer has.
#pragma once

#include <optional>
#include <vector>

#include "runtime/commands.h"
#include "runtime/fault.h"

namespace metalsim {

// Arguments that are too short, stale or freed; threadgroup memory.
std::optional<Fault> check_before(const Dispatch& dispatch);

// Memory that was freed under the kernel or written outside of its buffers.
std::optional<Fault> check_after(const Dispatch& dispatch);

// What an output holds before the first dispatch that writes it runs is the
// host's data, or an earlier output's: MLX reuses buffers, and a smaller output
// leaves the rest of one as it was. Some of it may have the bits of the poison.
void note_data(const Dispatch& dispatch);

// Notes which buffers the dispatch reads and writes, for check_outputs.
void note_use(const Dispatch& dispatch);

// Outputs that are not written in full once all dispatches of a command buffer
// have run. A tail that MLX adds is none of it: to whole pages, to four bytes.
std::optional<Fault> check_outputs(
    const std::vector<const Dispatch*>& dispatches);

} // namespace metalsim
