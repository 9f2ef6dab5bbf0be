// The interface between the engine and the MSL shim inside a compiled kernel:
// what a running lane can see and ask for. Not for the device runtime.
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
  // The threadgroup, at a barrier that orders no memory. Metal wants every lane
  // there as well; GPUs count simdgroups, and MLX's gemv_t has lanes beyond the
  // last column that stay away.
  MTLSIM_GROUP_LOOSE = 3,
};

// Values that lanes exchange, for one scope. A lane writes its slot of the
// current generation's parity, tags it with the generation, meets the others,
// then reads theirs. Two parities suffice: nobody can start on generation g+2
// before everybody has left g. The tag tells a value of this generation from
// one that a lane left behind which has since returned.
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
  const void*
      zeros; // read-only zeros that stand for an argument that is switched off
  uint32_t zeros_bytes;
  // Inaccessible; each buffer index that nothing is bound to has its part.
  unsigned char* unbound;
  static constexpr uint64_t kUnboundBytes = 16 << 20;
  unsigned char* stacks; // every lane's stack lies between these
  unsigned char* stacks_end;

  // Of an engine that keeps track, else null. Checked kernels: two cells a byte
  // of threadgroup memory, as mtlsim_dispatch::history. Tracked kernels: a byte
  // and a quarter of a number for each byte of the stacks and of threadgroup
  // memory (msl/mtlsim/track.h).
  uint64_t* history;
  unsigned char *stack_shadow, *local_shadow;
  uint32_t *stack_origins, *local_origins;
  // How many barriers each lane has passed that order threadgroup and device
  // memory, of the threadgroup and of the simdgroup.
  uint32_t passed[MTLSIM_MAX_THREADS][2];
  uint32_t simd_passed[MTLSIM_MAX_THREADS][2];

  mtlsim_exchange simd, quad;
  uint32_t simd_generation[MTLSIM_MAX_THREADS / MTLSIM_SIMD_WIDTH];
  uint32_t quad_generation[MTLSIM_MAX_THREADS / 4];
  // What a simdgroup or quad computed together in the generation of the tag:
  // the first lane to resume computes it, the others read it.
  alignas(16) unsigned char simd_result[MTLSIM_MAX_THREADS / MTLSIM_SIMD_WIDTH]
                                       [2][mtlsim_exchange::kSlotBytes];
  uint32_t simd_result_tag[MTLSIM_MAX_THREADS / MTLSIM_SIMD_WIDTH][2];

  // Waits until every lane of the group that has not returned is here.
  void (*meet)(mtlsim_lanes*, mtlsim_scope, const mtlsim_site*);
  // Says what an address that the kernel must not use belongs to, and abandons
  // the threadgroup. Does not return.
  void (*trap)(mtlsim_lanes*, const void* address);
  // Abandons the threadgroup. Does not return.
  void (*fail)(
      mtlsim_lanes*,
      mtlsim_fault_code,
      int32_t slot,
      uint64_t offset,
      const char* message);
  // Runs `body` once for each lane; returns the fault code. Dispatch and
  // arguments serve to explain a bad address.
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
