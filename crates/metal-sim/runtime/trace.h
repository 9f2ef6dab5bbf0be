// The record of what ran: counters by name, one JSON object per dispatch.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/commands.h"
#include "runtime/executor.h"

namespace metalsim {

// `queue` and `command_buffer` number both from 1 in the order in which they
// were made.
void record(
    const Dispatch& dispatch,
    const Outcome& outcome,
    std::uint64_t queue,
    std::uint64_t command_buffer);

// By host name or by specialised name; all for null.
std::uint64_t dispatch_count(const char* kernel);
std::string dispatch_counts();
void reset_counts();

void trace_start();
std::string trace_take();
void trace_stop();

} // namespace metalsim
