// The interface between the engine and the MSL shim inside a compiled kernel:
// what a running lane can read and request. Not for the device runtime.
#pragma once

#include "kernel_abi.h"

// A place in the kernel's source where lanes meet.
struct mtlsim_site {
  const char* call; // "simd_sum", "threadgroup_barrier"
  const char* file;
  uint32_t line;
  uint32_t column;
};

enum mtlsim_scope : uint32_t {
  MTLSIM_QUAD = 0,
  MTLSIM_SIMD = 1,
  MTLSIM_GROUP = 2,
  // The threadgroup, at a barrier that orders no memory. Metal requires every
  // lane here too, but GPUs count simdgroups, and in MLX's gemv_t lanes past
  // the last column do not reach the barrier.
  MTLSIM_GROUP_LOOSE = 3,
};

// Values that lanes exchange, for one scope. A lane writes its slot for the
// parity of the current generation, tags it with the generation, meets the
// others, then reads theirs. Two parities suffice: no lane can start generation
// g+2 before all have left g. The tag distinguishes a value of this generation
// from one left by a lane that has returned.
struct mtlsim_exchange {
  static constexpr uint32_t kSlotBytes = 32;
  alignas(16) unsigned char slot[2][MTLSIM_MAX_THREADS][kSlotBytes];
  uint32_t tag[2][MTLSIM_MAX_THREADS];
};

struct mtlsim_lanes {
  uint32_t lane; // thread index in threadgroup of the lane that runs
  uint32_t lane_count; // in this threadgroup
  uint32_t reduction; // mtlsim_reduction
  unsigned char* threadgroup_memory;
  uint32_t threadgroup_bytes; // static and dynamic
  const void* zeros; // read-only zeros for a disabled argument
  uint32_t zeros_bytes;
  // Inaccessible memory, with a part for each unbound buffer index.
  unsigned char* unbound;
  static constexpr uint64_t kUnboundBytes = 16 << 20;
  unsigned char* stacks; // every lane's stack lies between these
  unsigned char* stacks_end;

  // Set if the engine tracks, else null. Checked kernels: two cells for each
  // byte of threadgroup memory, as in mtlsim_dispatch::history. Tracked
  // kernels: a byte and a quarter of a number for each byte of the stacks and
  // of threadgroup memory (msl/mtlsim/track.h).
  uint64_t* history;
  unsigned char *stack_shadow, *local_shadow;
  uint32_t *stack_origins, *local_origins;
  // For each lane, the number of barriers it has passed that order threadgroup
  // memory and device memory, of the threadgroup and of the simdgroup.
  uint32_t passed[MTLSIM_MAX_THREADS][2];
  uint32_t simd_passed[MTLSIM_MAX_THREADS][2];

  mtlsim_exchange simd, quad;
  uint32_t simd_generation[MTLSIM_MAX_THREADS / MTLSIM_SIMD_WIDTH];
  uint32_t quad_generation[MTLSIM_MAX_THREADS / 4];
  // The common result of a simdgroup or quad in the tagged generation: the
  // first lane to resume computes it, the others read it.
  alignas(16) unsigned char simd_result[MTLSIM_MAX_THREADS / MTLSIM_SIMD_WIDTH]
                                       [2][mtlsim_exchange::kSlotBytes];
  uint32_t simd_result_tag[MTLSIM_MAX_THREADS / MTLSIM_SIMD_WIDTH][2];

  // Waits for every lane of the group that has not returned.
  void (*meet)(mtlsim_lanes*, mtlsim_scope, const mtlsim_site*);
  // Reports what an invalid address belongs to, and abandons the threadgroup.
  // Does not return.
  void (*trap)(mtlsim_lanes*, const void* address);
  // Abandons the threadgroup. Does not return.
  void (*fail)(
      mtlsim_lanes*,
      mtlsim_fault_code,
      int32_t slot,
      uint64_t offset,
      const char* message);
  // Runs `body` once for each lane; returns the fault code. Dispatch and
  // arguments are used to explain a bad address.
  int (*run)(
      mtlsim_lanes*,
      const mtlsim_dispatch*,
      const mtlsim_argument* arguments,
      uint32_t argument_count,
      uint32_t lane_count,
      uint32_t threadgroup_bytes,
      void (*body)(void* argument, uint32_t lane),
      void* argument,
      mtlsim_report*);
};
