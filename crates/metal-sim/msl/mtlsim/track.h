// Tracked kernels: detects uninitialized values of local variables and of
// threadgroup memory. The compiler (-fsanitize=kernel-memory) keeps a shadow
// for each value, with a 1 for each uninitialized bit, and calls these
// functions. A branch or an address that depends on such a bit is a fault, and
// so is a store of one into a buffer; values that are only moved or added are
// not.
#pragma once

#include "kernel.h"

#ifdef MTLSIM_TRACKED

// Functions that the compiler calls must not be instrumented themselves.
#pragma clang attribute push( \
    __attribute__((disable_sanitizer_instrumentation)), apply_to = function)

#define MTLSIM_TRACK \
  extern "C" [[gnu::used, gnu::visibility("hidden"), gnu::noinline]]

extern "C" [[gnu::visibility(
    "hidden")]] const char __ehdr_start; // of this shared object

namespace mtlsim {

struct Metadata {
  void* shadow;
  uint32_t* origin;
};

// LLVM's MsanContextStateTy: shadows of arguments and of return values.
struct Passed {
  alignas(16) unsigned char bytes[8192];
};
static constinit thread_local Passed passed{};

// The last store to untracked memory: the compiler writes its shadow after the
// call that asks for the shadow's address.
struct Store {
  static constexpr uint32_t kMost = 512;
  alignas(16) unsigned char shadow[kMost];
  alignas(16) uint32_t origins[kMost / 4];
  uint32_t size;
  uintptr_t at;
};
static constinit thread_local Store last_store{};

// The name of a variable, given by its offset from the start of the object.
inline void name_origin(Text& t, uint32_t origin) {
  if (!origin)
    t << "threadgroup memory";
  else
    t << "the local variable " << (&__ehdr_start + origin);
}

[[gnu::cold, gnu::noinline]] inline void report_store() {
  auto& s = last_store;
  uint32_t bad = 0;
  while (!s.shadow[bad])
    ++bad;
  uint32_t size = s.size;
  s.size = 0;
  for (int i = 0; i < MTLSIM_BUFFER_SLOTS; ++i) {
    auto base = reinterpret_cast<uintptr_t>(call->dispatch->buffer[i]);
    if (!base || s.at - base >= call->dispatch->buffer_length[i])
      continue;
    Text t;
    t << "an uninitialized value is stored at byte " << s.at - base + bad
      << " of the buffer at index " << uint64_t(i) << ": part of ";
    name_origin(t, s.origins[bad / 4]);
    for (uint32_t k = 0; k < size; ++k)
      s.shadow[k] = 0;
    here->fail(here, MTLSIM_FAULT_UNINITIALISED, i, s.at - base, t.data);
  }
  for (uint32_t k = 0; k < size; ++k)
    s.shadow[k] = 0;
}

inline void before_meeting() {
  auto& s = last_store;
  for (uint32_t i = 0; i < s.size; ++i)
    if (s.shadow[i])
      return report_store();
  s.size = 0;
}

// The shadow of tracked memory.
inline bool followed(
    uintptr_t at,
    uint64_t size,
    unsigned char*& shadow,
    uint32_t*& origin) {
  if (!here || !here->stack_shadow)
    return false;
  auto stacks = reinterpret_cast<uintptr_t>(here->stacks);
  auto local = reinterpret_cast<uintptr_t>(here->threadgroup_memory);
  uint64_t length = uint64_t(here->stacks_end - here->stacks);
  if (at - stacks < length && at + size - stacks <= length) {
    shadow = here->stack_shadow + (at - stacks);
    origin = here->stack_origins + (at - stacks) / 4;
    return true;
  }
  uint64_t rounded = (here->threadgroup_bytes + 15) / 16 * 16;
  if (at - local < rounded && at + size - local <= rounded) {
    shadow = here->local_shadow + (at - local);
    origin = here->local_origins + (at - local) / 4;
    return true;
  }
  return false;
}

inline Metadata metadata(uintptr_t at, uint64_t size, bool store) {
  unsigned char* shadow;
  uint32_t* origin;
  if (!here || !here->stack_shadow) // while the object is loaded
    return {passed.bytes, reinterpret_cast<uint32_t*>(passed.bytes)};
  before_meeting();
  if (followed(at, size, shadow, origin))
    return {shadow, origin};
  if (!store || size > Store::kMost)
    return {
        const_cast<void*>(here->zeros),
        static_cast<uint32_t*>(const_cast<void*>(here->zeros))};
  auto& s = last_store;
  s.at = at;
  s.size = uint32_t(size);
  return {s.shadow, s.origins};
}

// Sets the shadow of memory, if it is tracked.
inline void
mark(uintptr_t at, uint64_t size, unsigned char value, uint32_t id) {
  unsigned char* shadow;
  uint32_t* origin;
  if (!followed(at, size, shadow, origin))
    return;
  for (uint64_t i = 0; i < size; ++i)
    shadow[i] = value;
  if (value)
    for (uint64_t i = 0; i < size; i += 4)
      origin[i / 4] = id;
}

[[gnu::noinline]] inline void poison(void* value, size_t bytes) {
  mark(reinterpret_cast<uintptr_t>(value), bytes, 0xff, 0);
}

inline void copy_shadow(uintptr_t to, uintptr_t from, uint64_t bytes) {
  unsigned char *to_shadow, *from_shadow;
  uint32_t *to_origin, *from_origin;
  bool known = followed(from, bytes, from_shadow, from_origin);
  if (!known)
    return mark(to, bytes, 0, 0);
  if (!followed(to, bytes, to_shadow, to_origin))
    return;
  __builtin_memmove(to_shadow, from_shadow, bytes);
  for (uint64_t i = 0; i < bytes; i += 4)
    to_origin[i / 4] = from_origin[i / 4];
}

} // namespace mtlsim

MTLSIM_TRACK void* __msan_get_context_state() {
  return &mtlsim::passed;
}
MTLSIM_TRACK void __msan_warning(uint32_t origin) {
  mtlsim::Text t;
  t << "a branch or an address depends on an uninitialized value: part of ";
  mtlsim::name_origin(t, origin);
  mtlsim::here->fail(mtlsim::here, MTLSIM_FAULT_UNINITIALISED, -1, 0, t.data);
}
MTLSIM_TRACK uint32_t __msan_chain_origin(uint32_t origin) {
  return origin;
}
MTLSIM_TRACK void
__msan_poison_alloca(uintptr_t at, uint64_t size, const char* name) {
  mtlsim::mark(at, size, 0xff, uint32_t(name - &__ehdr_start));
}
MTLSIM_TRACK void __msan_unpoison_alloca(uintptr_t at, uint64_t size) {
  mtlsim::mark(at, size, 0, 0);
}
MTLSIM_TRACK void __msan_instrument_asm_store(uintptr_t at, uint64_t size) {
  mtlsim::mark(at, size, 0, 0);
}
#define MTLSIM_METADATA(size)                                         \
  MTLSIM_TRACK mtlsim::Metadata __msan_metadata_ptr_for_load_##size(  \
      uintptr_t at) {                                                 \
    return mtlsim::metadata(at, size, false);                         \
  }                                                                   \
  MTLSIM_TRACK mtlsim::Metadata __msan_metadata_ptr_for_store_##size( \
      uintptr_t at) {                                                 \
    return mtlsim::metadata(at, size, true);                          \
  }
MTLSIM_METADATA(1)
MTLSIM_METADATA(2)
MTLSIM_METADATA(4)
MTLSIM_METADATA(8)
MTLSIM_TRACK mtlsim::Metadata __msan_metadata_ptr_for_load_n(
    uintptr_t at,
    uint64_t size) {
  return mtlsim::metadata(at, size, false);
}
MTLSIM_TRACK mtlsim::Metadata __msan_metadata_ptr_for_store_n(
    uintptr_t at,
    uint64_t size) {
  return mtlsim::metadata(at, size, true);
}
MTLSIM_TRACK void* __msan_memcpy(void* to, const void* from, size_t bytes) {
  mtlsim::copy_shadow(
      reinterpret_cast<uintptr_t>(to),
      reinterpret_cast<uintptr_t>(from),
      bytes);
  return __builtin_memcpy(to, from, bytes);
}
MTLSIM_TRACK void* __msan_memmove(void* to, const void* from, size_t bytes) {
  mtlsim::copy_shadow(
      reinterpret_cast<uintptr_t>(to),
      reinterpret_cast<uintptr_t>(from),
      bytes);
  return __builtin_memmove(to, from, bytes);
}
MTLSIM_TRACK void* __msan_memset(void* to, int value, size_t bytes) {
  mtlsim::mark(reinterpret_cast<uintptr_t>(to), bytes, 0, 0);
  return __builtin_memset(to, value, bytes);
}

#pragma clang attribute pop

#endif // MTLSIM_TRACKED
