// The engine: runs the lanes of one threadgroup on one operating-system thread.
// The device runtime creates one for each worker thread and passes it to
// mtlsim_kernel::run; two threads must not use it at once.
#pragma once

#include "kernel_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

// Order in which simd_sum and simd_product combine the lanes. Apple does not
// document it: a claim that is true for one order only is a claim about that
// order.
typedef enum mtlsim_reduction {
  MTLSIM_REDUCE_BUTTERFLY = 0, // xor 16, 8, 4, 2, 1 (default)
  MTLSIM_REDUCE_NEIGHBOURS = 1, // xor 1, 2, 4, 8, 16
  MTLSIM_REDUCE_SEQUENTIAL = 2, // lane 0 + lane 1 + ...
} mtlsim_reduction;

// Order in which runnable lanes are run. A kernel without a missing barrier
// gives the same result under each.
typedef enum mtlsim_schedule {
  MTLSIM_SCHEDULE_FORWARD = 0,
  MTLSIM_SCHEDULE_REVERSE = 1,
} mtlsim_schedule;

typedef struct mtlsim_engine_options {
  uint32_t reduction;
  uint32_t schedule;
  uint32_t threadgroup_limit; // bytes of threadgroup memory that a threadgroup
                              // may have; 0: 32768
  uint32_t stack_bytes; // of one lane; 0: 256 KiB (reserved, not touched)
  uint32_t track; // 1: for checked and tracked kernels (lane_abi.h)
} mtlsim_engine_options;

// Null if memory cannot be reserved.
mtlsim_engine* mtlsim_engine_create(const mtlsim_engine_options* options);
void mtlsim_engine_destroy(mtlsim_engine* engine);

// For a handler (SA_SIGINFO | SA_ONSTACK | SA_NODEFER, on an alternate stack)
// of a thread that is inside mtlsim_kernel::run with this engine: explains the
// signal in the report and makes `run` return its fault. `code` and `address`
// are si_code and si_addr of SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGTRAP.
// Does not return.
void mtlsim_engine_abandon(
    mtlsim_engine* engine,
    int signal,
    int code,
    const void* address);

// Like mtlsim_engine_abandon, for a threadgroup that has run for `seconds`.
void mtlsim_engine_give_up(mtlsim_engine* engine, double seconds);

// Whether a lane was running when the stack pointer had this value. If not,
// `run` itself was running and cannot be abandoned.
int mtlsim_engine_in_lane(
    const mtlsim_engine* engine,
    const void* stack_pointer);

// The value of MTL_SIM_SIMD_SUM (butterfly, neighbours, sequential), or -1 for
// any other text.
int mtlsim_reduction_from_name(const char* name);

#ifdef __cplusplus
}
#endif
