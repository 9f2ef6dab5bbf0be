// Checked kernels: detects two lanes that use one address, at least one of them
// for a store, without a barrier between them for this kind of memory. For each
// byte, the last store and the last load are recorded
// (mtlsim_dispatch::history, mtlsim_lanes::history).
//
// Lanes of one threadgroup are ordered by threadgroup_barrier, and lanes of one
// simdgroup also by simdgroup_barrier; threadgroups are not ordered. Atomic
// operations do not race with one another. Not checked: lanes that have
// executed a fence, because its order is not tracked, and lanes that have
// passed more barriers than the counters can represent.
#pragma once

#include "meter.h"

#ifdef MTLSIM_CHECKED

namespace mtlsim {

// Who used a byte, and when; 0 for no use. The lane's barriers are counted in
// 13 bits, separately for threadgroup and simdgroup. In threadgroup memory,
// where the threadgroup is known, the counters have 12 more bits.
struct Use {
  static constexpr uint32_t kEpochs = (1 << 13) - 1;
  static constexpr uint32_t kLocalEpochs = (1 << 25) - 1;
  uint64_t bits;
  bool local;

  // Whether the counters can represent the barriers that the lane has passed.
  static bool counts(uint32_t memory) {
    uint32_t most = memory ? kEpochs : kLocalEpochs;
    return here->passed[here->lane][memory] <= most &&
        here->simd_passed[here->lane][memory] <= most;
  }
  static Use mine(uint32_t memory, bool atomic) {
    uint64_t lane = here->lane;
    uint64_t passed = here->passed[lane][memory];
    uint64_t simd_passed = here->simd_passed[lane][memory];
    uint64_t bits = kUsed | lane << 30 | uint64_t(atomic) << 29 |
        (passed & kEpochs) << 13 | (simd_passed & kEpochs);
    if (memory == 0)
      return {bits | passed >> 13 << 52 | simd_passed >> 13 << 40, true};
    const auto& c = *call;
    const auto* groups = c.dispatch->threadgroups;
    uint64_t serial =
        (c.position[0] +
         uint64_t(groups[0]) *
             (c.position[1] + uint64_t(groups[1]) * c.position[2])) %
        0xffffff;
    return {bits | serial << 40, false};
  }
  static constexpr uint64_t kUsed = 1ull << 26;
  // Two lanes read it: several of one simdgroup, or of several simdgroups.
  static constexpr uint64_t kSeveral = 1ull << 27, kFar = 1ull << 28;

  uint64_t group() const {
    return local ? 0 : bits >> 40;
  }
  uint32_t passed() const {
    return uint32_t((bits >> 13 & kEpochs) | (local ? bits >> 52 << 13 : 0));
  }
  uint32_t simd_passed() const {
    return uint32_t(
        (bits & kEpochs) | (local ? (bits >> 40 & 0xfff) << 13 : 0));
  }
  uint32_t lane() const {
    return bits >> 30 & 1023;
  }
  bool atomic() const {
    return bits >> 29 & 1;
  }
  bool several() const {
    return bits & (kSeveral | kFar);
  }
  // Whether this use and a later one are unordered.
  bool races(Use later) const {
    if (!bits || (atomic() && later.atomic()))
      return false;
    if (group() != later.group())
      return true;
    if (lane() == later.lane() && !several())
      return false;
    if (passed() != later.passed())
      return false;
    bool near = lane() / 32 == later.lane() / 32 && !(bits & kFar);
    return !(near && simd_passed() != later.simd_passed());
  }
};

inline const char* name_of(int slot) {
  for (uint32_t i = 0; i < call->argument_count; ++i)
    if (call->arguments[i].index == uint32_t(slot) &&
        call->arguments[i].address_space != MTLSIM_THREADGROUP)
      return call->arguments[i].name;
  return "?";
}

// `slot` is -1 for threadgroup memory.
[[noreturn, gnu::cold, gnu::noinline]] inline void
race(int slot, uint64_t offset, Use before, bool stored, bool store) {
  Text t;
  t << "a race at byte " << offset << " of ";
  if (slot < 0)
    t << "threadgroup memory";
  else
    t << "argument " << name_of(slot) << " (buffer index " << uint64_t(slot)
      << ")";
  t << ": this lane " << (store ? "stores" : "loads") << " what ";
  if (before.group() != Use::mine(slot >= 0, false).group())
    t << "another threadgroup " << (stored ? "stored" : "loaded");
  else
    t << (before.several() ? "several lanes, such as " : "lane ")
      << uint64_t(before.lane()) << (stored ? " stored" : " loaded")
      << "; no barrier with mem_flags::"
      << (slot < 0 ? "mem_threadgroup" : "mem_device") << " is between";
  here->fail(here, MTLSIM_FAULT_RACE, slot, offset, t.data);
  __builtin_unreachable();
}

// A store after another lane's store. It is a race unless it does not change
// the value: in MLX, lanes at an edge compute the same element.
struct Repeat {
  static constexpr uint64_t kMost = 16;
  unsigned char before[kMost];
  const unsigned char* at; // null if there is none
  uint64_t size, offset;
  int slot;
  Use first;
};
static constinit thread_local Repeat repeat{};

inline void before_meeting() {
  auto* at = repeat.at;
  if (!at)
    return;
  repeat.at = nullptr;
  for (uint64_t i = 0; i < repeat.size; ++i)
    if (at[i] != repeat.before[i])
      race(repeat.slot, repeat.offset + i, repeat.first, true, true);
}

inline void forget() {
  repeat.at = nullptr;
}

// Two cells per byte: the last store, the last load.
inline void use(
    int slot,
    uint64_t* cells,
    uint64_t offset,
    uint64_t size,
    bool store,
    bool atomic,
    const void* address) {
  before_meeting();
  if (!Use::counts(slot >= 0))
    return;
  Use mine = Use::mine(slot >= 0, atomic || (fenced && slot >= 0));
  for (uint64_t i = 0; i < size; ++i) {
    uint64_t* cell = cells + 2 * (offset + i);
    Use stored{__atomic_load_n(cell, __ATOMIC_RELAXED), slot < 0};
    Use loaded{__atomic_load_n(cell + 1, __ATOMIC_RELAXED), slot < 0};
    if (stored.races(mine)) {
      if (!store || atomic || stored.atomic() || size > Repeat::kMost)
        race(slot, offset + i, stored, true, store);
      if (!repeat.at) {
        repeat.at = static_cast<const unsigned char*>(address);
        repeat.size = size;
        repeat.offset = offset;
        repeat.slot = slot;
        repeat.first = stored;
        __builtin_memcpy(repeat.before, repeat.at, size);
      }
    }
    if (store) {
      if (loaded.races(mine))
        race(slot, offset + i, loaded, false, store);
      __atomic_store_n(cell, mine.bits, __ATOMIC_RELAXED);
    } else {
      // A load that is not ordered with this one is kept, with a mark.
      uint64_t kept = mine.bits;
      if (loaded.races(mine) && loaded.group() == mine.group())
        kept = loaded.bits |
            (loaded.lane() / 32 == mine.lane() / 32 ? Use::kSeveral
                                                    : Use::kFar);
      __atomic_store_n(cell + 1, kept, __ATOMIC_RELAXED);
    }
  }
}

inline void
check_local(uint64_t offset, uint64_t size, bool store, bool atomic) {
  bool inside = extent_count > sizeof extents / sizeof *extents;
  for (uint32_t i = 0; i < extent_count && !inside; ++i)
    inside = offset >= extents[i].start && offset + size <= extents[i].end;
  for (uint32_t i = 0; i < MTLSIM_THREADGROUP_SLOTS && !inside; ++i)
    inside = offset >= call->place[i] &&
        offset + size <= call->place[i] + call->dispatch->threadgroup_length[i];
  if (!inside) {
    Text t;
    t << "access outside every threadgroup array, " << size << " bytes";
    for (uint32_t i = 0; i < extent_count; ++i)
      if (offset >= extents[i].end && offset - extents[i].end < gap)
        t << ", " << offset - extents[i].end << " past the end of one of "
          << uint64_t(extents[i].end - extents[i].start);
    here->fail(here, MTLSIM_FAULT_OUT_OF_RANGE, -1, offset, t.data);
  }
  use(-1,
      here->history,
      offset,
      size,
      store,
      atomic,
      here->threadgroup_memory + offset);
}

inline void check_buffer(
    int slot,
    uint64_t offset,
    uint64_t size,
    bool store,
    bool atomic) {
  const auto& d = *call->dispatch;
  auto* cells = d.history[slot];
  if (!cells)
    return;
  // Bytes that this dispatch did not store either are unwritten. Atomic updates
  // of part of a word load the bytes beside it.
  if (!store && !atomic && !(call->const_buffers >> slot & 1) && d.unwritten &&
      !cells[2 * offset] &&
      d.unwritten(d.owner, uint32_t(slot), offset, size)) {
    Text t;
    t << "load of an unwritten byte: byte " << offset << " of argument "
      << name_of(slot) << " (buffer index " << uint64_t(slot) << ")";
    here->fail(here, MTLSIM_FAULT_UNINITIALISED, slot, offset, t.data);
  }
  use(slot,
      cells,
      offset,
      size,
      store,
      atomic,
      static_cast<unsigned char*>(d.buffer[slot]) + offset);
}

[[gnu::noinline]] inline void
atomic_use(const volatile void* address, uint64_t size, bool store) {
  count(reinterpret_cast<uintptr_t>(address), size, store, true);
}

inline void fence() {
  fenced = true;
}

inline void inactive(uint32_t from, const mtlsim_site& site) {
  Text t;
  t << site.call << " at " << site.file << ":" << uint64_t(site.line)
    << " reads lane " << uint64_t(from)
    << ", which has returned or does not exist";
  here->fail(here, MTLSIM_FAULT_INACTIVE, -1, 0, t.data);
  __builtin_unreachable();
}

} // namespace mtlsim

// Called before a function that does not return. Nothing is recorded for
// stacks.
extern "C" [[gnu::used, gnu::visibility("hidden")]] void
__asan_handle_no_return() {}

#endif // MTLSIM_CHECKED
