// Metered kernels: the compiler calls these for each load and store, except
// those to a lane's registers or to stack slots that are provably private.
#pragma once

#include "kernel.h"

#ifdef MTLSIM_METER

extern "C" [[gnu::visibility("hidden")]] const char __ehdr_start,
    _end; // of this shared object

namespace mtlsim {

// Bound memory, cut so that no address is in two ranges: if one argument begins
// inside another, the rest belongs to the later one.
struct Ranges {
  uintptr_t base[MTLSIM_BUFFER_SLOTS];
  uint64_t bytes[MTLSIM_BUFFER_SLOTS];
  uint8_t slot[MTLSIM_BUFFER_SLOTS];
  uint32_t count, last;

  void add(void* start, uint64_t length, uint8_t index) {
    auto at = reinterpret_cast<uintptr_t>(start);
    uint32_t i = count;
    while (i > 0 && base[i - 1] > at)
      --i;
    if (i > 0 && base[i - 1] == at) {
      if (bytes[i - 1] < length)
        bytes[i - 1] = length;
      return;
    }
    for (uint32_t k = count; k > i; --k) {
      base[k] = base[k - 1];
      bytes[k] = bytes[k - 1];
      slot[k] = slot[k - 1];
    }
    base[i] = at;
    bytes[i] = length;
    slot[i] = index;
    ++count;
  }
  void cut() {
    for (uint32_t i = 0; i + 1 < count; ++i)
      if (bytes[i] > base[i + 1] - base[i])
        bytes[i] = base[i + 1] - base[i];
  }
  bool contains(uint32_t i, uintptr_t at) const {
    return at - base[i] < bytes[i];
  }
  // The slot of an address and the offset in it, or -1.
  int find(uintptr_t at, uint64_t& offset) {
    if (!(last < count && contains(last, at))) {
      last = 0;
      while (last < count && !contains(last, at))
        ++last;
      if (last == count)
        return -1;
    }
    offset = at - base[last];
    return slot[last];
  }
};

struct Meter {
  Ranges readable, writable;
};
static constinit thread_local Meter meter{};
#ifdef MTLSIM_CHECKED
// Whether the threadgroup has executed a fence.
static constinit thread_local bool fenced = false;
void forget(); // races.h
#endif

inline void start_meter(const Call& c) {
  meter = {};
#ifdef MTLSIM_CHECKED
  forget(); // state left by an abandoned threadgroup
  fenced = false;
#endif
  const auto& d = *c.dispatch;
  for (uint8_t i = 0; i < MTLSIM_BUFFER_SLOTS; ++i) {
    if (!d.buffer[i] || c.buffer[i] != d.buffer[i])
      continue;
    meter.readable.add(d.buffer[i], d.buffer_length[i], i);
    if (!(c.const_buffers >> i & 1))
      meter.writable.add(d.buffer[i], d.buffer_length[i], i);
  }
  meter.readable.cut();
  meter.writable.cut();
}

// Memory that a kernel may use and that is not a buffer.
inline bool is_private(uintptr_t at, uint64_t size) {
  auto within = [&](const void* base, uint64_t bytes) {
    return at - reinterpret_cast<uintptr_t>(base) < bytes &&
        at + size - reinterpret_cast<uintptr_t>(base) <= bytes;
  };
  return within(here->stacks, uint64_t(here->stacks_end - here->stacks)) ||
      within(here, sizeof(mtlsim_lanes)) ||
      within(&__ehdr_start, uint64_t(&_end - &__ehdr_start)) ||
      within(&here, sizeof here) || within(&call, sizeof call) ||
      within(call, sizeof *call) || is_constant(reinterpret_cast<void*>(at));
}

#ifdef MTLSIM_CHECKED
// races.h
void check_local(uint64_t offset, uint64_t size, bool store, bool atomic);
void check_buffer(
    int slot,
    uint64_t offset,
    uint64_t size,
    bool store,
    bool atomic);
#endif

// Only checked kernels mark atomic accesses.
inline void
count(uintptr_t at, uint64_t size, bool store, bool atomic = false) {
  if (!call)
    return; // outside a threadgroup: constructors of the shared object
  uint64_t offset = 0;
  auto& ranges = store ? meter.writable : meter.readable;
  for (uint64_t done = 0; done < size;) {
    int slot = ranges.find(at + done, offset);
    if (slot < 0) {
      auto local = reinterpret_cast<uintptr_t>(here->threadgroup_memory);
      if (at - local < here->threadgroup_bytes &&
          at + size - local <= here->threadgroup_bytes) {
        (store ? call->report->threadgroup_stored
               : call->report->threadgroup_loaded) += size;
#ifdef MTLSIM_CHECKED
        check_local(at - local, size, store, atomic);
#endif
        return;
      }
      if (is_private(at, size))
        return;
      auto zeros = reinterpret_cast<uintptr_t>(here->zeros);
      if (!store && at - zeros < here->zeros_bytes)
        return;
      if (store && (slot = meter.readable.find(at + done, offset)) >= 0) {
        Text t;
        t << "store through a const argument (buffer index " << uint64_t(slot)
          << ", byte " << offset << ")";
        here->fail(here, MTLSIM_FAULT_CONST_WRITE, slot, offset, t.data);
      }
      here->trap(here, reinterpret_cast<void*>(at + done));
    }
    uint64_t left = ranges.bytes[ranges.last] - offset;
    uint64_t part = size - done < left ? size - done : left;
    (store ? call->report->stored : call->report->loaded)[slot] += part;
#ifdef MTLSIM_CHECKED
    check_buffer(slot, offset, part, store, atomic);
#endif
    if (store)
      if (uint8_t* written = call->dispatch->written[slot])
        for (uint64_t i = 0; i < part; ++i)
          __atomic_store_n(written + offset + i, uint8_t(1), __ATOMIC_RELAXED);
    done += part;
  }
}

} // namespace mtlsim

#define MTLSIM_CALLBACK extern "C" [[gnu::used, gnu::visibility("hidden")]] void
#define MTLSIM_COUNT(bytes)                                       \
  MTLSIM_CALLBACK __mtlsim_load##bytes##_noabort(uintptr_t at) {  \
    mtlsim::count(at, bytes, false);                              \
  }                                                               \
  MTLSIM_CALLBACK __mtlsim_store##bytes##_noabort(uintptr_t at) { \
    mtlsim::count(at, bytes, true);                               \
  }
MTLSIM_COUNT(1)
MTLSIM_COUNT(2)
MTLSIM_COUNT(4)
MTLSIM_COUNT(8)
MTLSIM_COUNT(16)
MTLSIM_CALLBACK __mtlsim_loadN_noabort(uintptr_t at, size_t bytes) {
  mtlsim::count(at, bytes, false);
}
MTLSIM_CALLBACK __mtlsim_storeN_noabort(uintptr_t at, size_t bytes) {
  mtlsim::count(at, bytes, true);
}
extern "C" [[gnu::used, gnu::visibility("hidden")]] void*
__mtlsim_memcpy(void* to, const void* from, size_t bytes) {
  mtlsim::count(reinterpret_cast<uintptr_t>(from), bytes, false);
  mtlsim::count(reinterpret_cast<uintptr_t>(to), bytes, true);
  return __builtin_memcpy(to, from, bytes);
}
extern "C" [[gnu::used, gnu::visibility("hidden")]] void*
__mtlsim_memmove(void* to, const void* from, size_t bytes) {
  mtlsim::count(reinterpret_cast<uintptr_t>(from), bytes, false);
  mtlsim::count(reinterpret_cast<uintptr_t>(to), bytes, true);
  return __builtin_memmove(to, from, bytes);
}
extern "C" [[gnu::used, gnu::visibility("hidden")]] void*
__mtlsim_memset(void* to, int value, size_t bytes) {
  mtlsim::count(reinterpret_cast<uintptr_t>(to), bytes, true);
  return __builtin_memset(to, value, bytes);
}

#endif // MTLSIM_METER
