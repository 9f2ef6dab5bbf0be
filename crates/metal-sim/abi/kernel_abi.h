// The C interface between the device runtime and one compiled kernel.
//
// A compiled kernel is a shared object that exports one symbol,
// `mtlsim_kernel_entry` (of type `mtlsim_kernel`): the kernel's name, its
// arguments, and a function that runs one threadgroup. It has no state between
// calls, so several threads may run threadgroups of one kernel at once, each
// with its own engine.
//
// The engine (engine/engine.h) provides lane stacks, threadgroup memory and
// rendezvous for a running threadgroup. It is part of the runtime, one per
// worker thread; kernels call it through the function table in lane_abi.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MTLSIM_ABI_VERSION 2u

enum {
  MTLSIM_BUFFER_SLOTS =
      31, // buffer indices 0..30, as in Metal's argument table
  MTLSIM_THREADGROUP_SLOTS = 31, // threadgroup memory indices
  MTLSIM_MAX_THREADS = 1024, // in one threadgroup
  MTLSIM_SIMD_WIDTH = 32,
};

// One value of MTLFunctionConstantValues. `type` is MTLDataType's number; `raw`
// starts with the value's bytes (little-endian).
typedef struct mtlsim_constant {
  uint32_t index;
  uint32_t type;
  uint64_t raw;
} mtlsim_constant;

// One dispatch, shared by all its threadgroups. Kernels never write it.
typedef struct mtlsim_dispatch {
  // The start of the memory bound at each index (offset applied), or null. A
  // kernel may have arguments that it never reads; only an access to an unbound
  // one is a fault.
  void* buffer[MTLSIM_BUFFER_SLOTS];
  // Bytes from there to the end of the buffer (or of the setBytes copy).
  uint64_t buffer_length[MTLSIM_BUFFER_SLOTS];
  // Optional shadow, one byte for each byte of `buffer`: instrumented kernels
  // set it to 1 when they store. Null if not recorded.
  uint8_t* written[MTLSIM_BUFFER_SLOTS];
  // Optional, for checked kernels: two cells for each byte of `buffer`, the
  // last store and the last load by a threadgroup of this dispatch
  // (msl/mtlsim/races.h).
  uint64_t* history[MTLSIM_BUFFER_SLOTS];
  // Optional, for checked kernels: whether any of these bytes is unwritten.
  int (*unwritten)(
      const void* owner,
      uint32_t index,
      uint64_t offset,
      uint64_t bytes);
  const void* owner;
  // setThreadgroupMemoryLength, in bytes.
  uint32_t threadgroup_length[MTLSIM_THREADGROUP_SLOTS];
  uint32_t threadgroups[3]; // threadgroups per grid, rounded up
  uint32_t threads_per_threadgroup[3]; // as requested; threadgroups at an edge
                                       // may have fewer
  uint32_t threads[3]; // threads per grid; not a multiple for dispatchThreads
  uint32_t constant_count;
  const mtlsim_constant* constants;
} mtlsim_dispatch;

typedef enum mtlsim_fault_code {
  MTLSIM_OK = 0,
  MTLSIM_FAULT_DIVERGENT = 1, // lanes of one group wait at different calls, or
                              // for lanes that wait elsewhere
  MTLSIM_FAULT_MISSING_ARGUMENT = 2, // an access through an unbound argument
  MTLSIM_FAULT_SHORT_ARGUMENT =
      3, // fewer bytes bound than the size of the argument's type
  MTLSIM_FAULT_CONSTANT_TYPE = 5, // a function constant set with another type
  MTLSIM_FAULT_THREADGROUP_MEMORY =
      6, // static and dynamic threadgroup memory over the device's limit
  MTLSIM_FAULT_OUT_OF_RANGE =
      7, // an access outside every bound buffer and the threadgroup's memory
  MTLSIM_FAULT_STACK = 8, // a lane ran over its stack
  MTLSIM_FAULT_THREADS = 9, // more threads than the kernel or the engine takes
  MTLSIM_FAULT_CONST_WRITE =
      10, // instrumented kernels: a store through a const argument
  MTLSIM_FAULT_DIVISION = 11, // integer division without a result
  MTLSIM_FAULT_ENDLESS = 12, // the threadgroup took too long
  MTLSIM_FAULT_UNDEFINED = 13, // undefined behaviour
  MTLSIM_FAULT_RACE =
      14, // two lanes use one address without an order between them
  MTLSIM_FAULT_UNINITIALISED =
      15, // a decision or a store depends on uninitialized data
  MTLSIM_FAULT_INACTIVE = 16, // a read of a value of an inactive lane
} mtlsim_fault_code;

// The report of one threadgroup. The caller zeroes it. A kernel adds to the
// counters, so one report may cover many threadgroups of one worker.
typedef struct mtlsim_report {
  uint32_t fault; // mtlsim_fault_code of the first fault
  uint32_t lane; // thread index in the threadgroup, if one is to blame
  uint32_t threadgroup[3];
  int32_t slot; // buffer index, if one is to blame, else -1
  uint64_t offset; // byte offset in that buffer
  char message[512]; // one line, zero-terminated: kernel source file and line
                     // included
  // Instrumented kernels only: bytes loaded and stored, by buffer index.
  uint64_t loaded[MTLSIM_BUFFER_SLOTS];
  uint64_t stored[MTLSIM_BUFFER_SLOTS];
  uint64_t threadgroup_loaded, threadgroup_stored;
} mtlsim_report;

typedef struct mtlsim_engine mtlsim_engine; // engine/engine.h

typedef enum mtlsim_address_space {
  MTLSIM_DEVICE = 0,
  MTLSIM_CONSTANT = 1,
  MTLSIM_THREADGROUP = 2,
} mtlsim_address_space;

typedef struct mtlsim_argument {
  const char* name; // in the kernel's source
  uint32_t
      index; // buffer index, or threadgroup memory index for MTLSIM_THREADGROUP
  uint32_t address_space; // mtlsim_address_space
  uint32_t is_const; // 1: the kernel may not write through it
  uint32_t minimum_bytes; // size of the pointee; for a reference all of it must
                          // be bound
  uint32_t is_reference;
  int32_t function_constant; // index of the constant that switches the argument
                             // on, -1: always there
} mtlsim_argument;

typedef struct mtlsim_constant_use {
  const char* name;
  uint32_t index;
  uint32_t type; // MTLDataType's number
  uint32_t size; // bytes
} mtlsim_constant_use;

typedef enum mtlsim_variant {
  MTLSIM_PLAIN = 0,
  MTLSIM_METERED = 1, // counts bytes, marks `written`, checks ranges
  MTLSIM_CHECKED_VARIANT = 2, // also alignment, bounds, races, inactive lanes
  MTLSIM_TRACKED_VARIANT = 3, // tracks uninitialized values
} mtlsim_variant;

typedef struct mtlsim_kernel {
  uint32_t abi_version; // MTLSIM_ABI_VERSION
  uint32_t variant; // mtlsim_variant
  const char* host_name;
  const char* source; // the .metal file or "JIT"
  uint32_t argument_count;
  const mtlsim_argument* arguments;
  uint32_t constant_count; // constants that the kernel's source declares
  const mtlsim_constant_use* constants;
  uint32_t max_threads; // [[max_total_threads_per_threadgroup]], else
                        // MTLSIM_MAX_THREADS
  // Bytes of threadgroup variables in the kernel and in its callees.
  uint32_t (*static_threadgroup_bytes)(void);
  // Runs the threadgroup at `position`. Returns the fault code, which is also
  // in the report with its message; a threadgroup with a fault is abandoned.
  // The thread should have a signal handler that calls mtlsim_engine_abandon.
  int (*run)(
      const mtlsim_dispatch* dispatch,
      const uint32_t position[3],
      mtlsim_engine* engine,
      mtlsim_report* report);
} mtlsim_kernel;

#define MTLSIM_KERNEL_SYMBOL "mtlsim_kernel_entry"

#ifdef __cplusplus
}
#endif
