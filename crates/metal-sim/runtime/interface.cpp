// The C interface (include/metal_sim.h).
#include <metal_sim.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/memory.h"
#include "runtime/options.h"
#include "runtime/trace.h"

namespace {

char* give(const std::string& text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy) {
    std::memcpy(copy, text.c_str(), text.size() + 1);
  }
  return copy;
}

} // namespace

char* metal_sim_configure(const char* name, const char* value) {
  if (!name || !value) {
    return give("a setting needs a name and a value");
  }
  auto complaint = metalsim::configure(name, value);
  return complaint.empty() ? nullptr : give(complaint);
}

uint64_t metal_sim_dispatch_count(const char* kernel) {
  return metalsim::dispatch_count(kernel);
}

char* metal_sim_dispatch_counts(void) {
  return give(metalsim::dispatch_counts());
}

void metal_sim_reset_counts(void) {
  metalsim::reset_counts();
}

void metal_sim_trace_start(void) {
  metalsim::trace_start();
}

char* metal_sim_trace_take(void) {
  return give(metalsim::trace_take());
}

void metal_sim_trace_stop(void) {
  metalsim::trace_stop();
}

size_t
metal_sim_first_unwritten(const void* data, size_t size, size_t element) {
  auto address = reinterpret_cast<std::uintptr_t>(data);
  auto region = metalsim::find_region(address, size);
  if (!region) {
    return SIZE_MAX;
  }
  auto from = address - reinterpret_cast<std::uintptr_t>(region->data());
  auto hole = region->unwritten(from, from + size, element);
  return hole ? *hole - from : SIZE_MAX;
}

void metal_sim_free(char* text) {
  std::free(text);
}
