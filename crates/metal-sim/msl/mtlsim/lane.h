// The state of a running lane, and how lanes meet.
#pragma once

#include "lane_abi.h"

namespace mtlsim {

// The lanes of the threadgroup that this thread runs. A lane never moves to
// another thread, so the address may be kept across a meeting.
static thread_local mtlsim_lanes* here = nullptr;

// A default argument that records the place of the call.
struct Site : mtlsim_site {
  static constexpr Site of(
      const char* call,
      const char* file = __builtin_FILE(),
      unsigned line = __builtin_LINE(),
      unsigned column = __builtin_COLUMN()) {
    return {{call, file, line, column}};
  }
};

#if defined(MTLSIM_CHECKED)
inline constexpr bool checked = true;
#else
inline constexpr bool checked = false;
#endif
#if defined(MTLSIM_CHECKED) || defined(MTLSIM_TRACKED)
void before_meeting(); // races.h, track.h
#endif
#if defined(MTLSIM_TRACKED)
void poison(void* value, size_t bytes);
#elif !defined(MTLSIM_CHECKED)
[[gnu::always_inline]] inline void before_meeting() {}
#endif

#ifdef MTLSIM_CHECKED
[[noreturn]] void inactive(uint32_t from, const mtlsim_site& site); // races.h
#endif

// Called after a barrier that orders the memory in the bits of mem_flags.
[[gnu::always_inline]] inline void pass(
    uint32_t (&passed)[MTLSIM_MAX_THREADS][2],
    uint32_t ordered) {
  if constexpr (checked) {
    passed[here->lane][0] += ordered >> 1 & 1; // mem_threadgroup
    passed[here->lane][1] += ordered & 1; // mem_device
  }
}

// Whether the call is a shift such as simd_shuffle_up or quad_shuffle_down.
inline bool is_shift(const char* call) {
  const char* end = call;
  while (*end)
    ++end;
  return (end - call > 3 && end[-3] == '_' && end[-2] == 'u' &&
          end[-1] == 'p') ||
      (end - call > 5 && end[-5] == '_' && end[-4] == 'd' && end[-1] == 'n');
}

template <class To, class From>
[[gnu::always_inline]] constexpr To bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs types of one size");
  return __builtin_bit_cast(To, from);
}

// One exchange of values among the lanes of a simdgroup or quad.
template <class T, mtlsim_scope Scope>
class Exchange {
 public:
  static constexpr uint32_t kWidth = Scope == MTLSIM_SIMD ? 32 : 4;

  Exchange(const T& mine, const mtlsim_site& site)
      : lanes_(*here), base_(lanes_.lane & ~(kWidth - 1)) {
    static_assert(
        sizeof(T) <= mtlsim_exchange::kSlotBytes,
        "too large for a lane's slot");
    generation_ = Scope == MTLSIM_SIMD ? lanes_.simd_generation[base_ / 32]
                                       : lanes_.quad_generation[base_ / 4];
    __builtin_memcpy(slot(lanes_.lane), &mine, sizeof(T));
    board().tag[parity()][lanes_.lane] = generation_;
    before_meeting();
    lanes_.meet(here, Scope, &site);
  }

  uint32_t lane() const {
    return lanes_.lane - base_;
  }

  // Lanes that have returned from the kernel do not take part.
  bool has(uint32_t lane) const {
    return lane < kWidth && base_ + lane < lanes_.lane_count &&
        board().tag[parity()][base_ + lane] == generation_;
  }

  T at(uint32_t lane) const {
    T value;
    __builtin_memcpy(&value, slot(base_ + lane), sizeof(T));
    return value;
  }

  // Calls `compute(values, takes_part)` in the first lane to arrive; all lanes
  // get its result.
  template <class R, class F>
  R once(F compute) const {
    static_assert(sizeof(R) <= mtlsim_exchange::kSlotBytes);
    static_assert(Scope == MTLSIM_SIMD);
    auto* result = lanes_.simd_result[base_ / 32][parity()];
    uint32_t& tag = lanes_.simd_result_tag[base_ / 32][parity()];
    R value;
    if (tag != generation_) {
      T values[kWidth];
      uint32_t part = 0;
      for (uint32_t i = 0; i < kWidth; ++i)
        if (has(i)) {
          values[i] = at(i);
          part |= 1u << i;
        }
      value = compute(values, part);
      __builtin_memcpy(result, &value, sizeof(R));
      tag = generation_;
    } else {
      __builtin_memcpy(&value, result, sizeof(R));
    }
    return value;
  }

  // Like `once`, if each lane gets its own value, in its slot.
  template <class F>
  void once_in_place(F compute) const {
    static_assert(Scope == MTLSIM_SIMD);
    uint32_t& tag = lanes_.simd_result_tag[base_ / 32][parity()];
    if (tag == generation_)
      return;
    compute(reinterpret_cast<unsigned char(*)[mtlsim_exchange::kSlotBytes]>(
        slot(base_)));
    tag = generation_;
  }
  template <class R>
  R mine() const {
    R value;
    __builtin_memcpy(&value, slot(lanes_.lane), sizeof(R));
    return value;
  }

 private:
  mtlsim_exchange& board() const {
    return Scope == MTLSIM_SIMD ? lanes_.simd : lanes_.quad;
  }
  uint32_t parity() const {
    return generation_ & 1;
  }
  unsigned char* slot(uint32_t lane) const {
    return board().slot[parity()][lane];
  }

  mtlsim_lanes& lanes_;
  uint32_t base_;
  uint32_t generation_;
};

#ifndef MTLSIM_CHECK
// Threadgroup variables of the kernel: laid out in sequence when the shared
// object is loaded, placed in the engine's memory when a lane uses them.
static uint32_t local_bytes = 0;
// Their size without the gaps between them in checked kernels.
static uint32_t local_needs = 0;
#ifdef MTLSIM_CHECKED
inline constexpr uint32_t gap = 64;
struct Extent {
  uint32_t start, end;
};
static Extent extents[64];
static uint32_t extent_count = 0;
#endif

inline uint32_t reserve_local(uint32_t size, uint32_t align) {
  local_needs = (local_needs + align - 1) / align * align + size;
#ifdef MTLSIM_CHECKED
  local_bytes += gap;
#endif
  uint32_t offset = (local_bytes + align - 1) / align * align;
  local_bytes = offset + size;
#ifdef MTLSIM_CHECKED
  if (extent_count < sizeof extents / sizeof *extents)
    extents[extent_count] = {offset, local_bytes};
  ++extent_count;
#endif
  return offset;
}

template <class T, int Declaration>
struct Local {
  static inline const uint32_t offset =
      reserve_local(sizeof(T), alignof(T) < 16 ? 16 : alignof(T));
};

template <class T, int Declaration>
[[gnu::always_inline]] inline T& local() {
  return *reinterpret_cast<T*>(
      here->threadgroup_memory + Local<T, Declaration>::offset);
}
#endif

} // namespace mtlsim
