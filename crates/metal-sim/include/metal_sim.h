// The simulated device, for tests: its settings, what it dispatched and what
// its detectors found. Every function may be called from any thread.
//
// A setting comes from metal_sim_configure, else from the environment variable
// of the same name, else it has the default given here. The first use of the
// device fixes all settings; an invalid value is then an error (a C++ exception
// from MLX's device).
//
//   MTL_SIM_ARCH      applegpu_g15d: the GPU, g13 to g18 and one of p g s c d
//   MTL_SIM_OS        26.0: the version for __builtin_available
//   MTL_SIM_MEMORY    the host's: bytes of the machine, K, M, G allowed
//   MTL_SIM_MAX_THREADS   1024: the limit for one threadgroup
//   MTL_SIM_THREADS   the host's cores: threadgroups run at once
//   MTL_SIM_PAGE      16384: MLX rounds allocations up to this size
//   MTL_SIM_SIMD_SUM  butterfly: order of simd_sum (see engine/engine.h)
//   MTL_SIM_COMPILER  the one of the build: path of metal-simc
//   MTL_SIM_TRACE     a file that receives one JSON line per dispatch
//   MTL_SIM_RUN       1: kernels run; 0: they are compiled, bound, counted and
//                     traced, but not run, to see what is dispatched
//
// and the detectors, each 0 or 1 unless stated otherwise:
//
//   MTL_SIM_GUARD     0: memory faults if an access leaves its buffer or uses a
//                     freed one
//   MTL_SIM_UNWRITTEN 1: reports unwritten parts of a kernel's output; data
//   read
//                     before any kernel wrote it counts as the host's
//   MTL_SIM_STALE     0: reports an argument that was bound before the current
//                     pipeline state was set
//   MTL_SIM_SHUFFLE   none: a seed; dispatches that no barrier, fence or event
//                     orders run in a random order, and so do threadgroups
//   MTL_SIM_METER     0: count bytes by buffer, check every access (slower)
//   MTL_SIM_CHECK     0: access: kernels detect races, misaligned accesses,
//                     array indexes out of bounds, reads of inactive lanes and
//                     of unwritten outputs; init: kernels detect results that
//                     depend on uninitialized values (costs: README.md)
//   MTL_SIM_WATCHDOG  60: a threadgroup that has not ended after this many
//                     seconds of processor time is a fault, 0 for no limit
//
// A finding makes the command buffer fail, like a fault of a GPU: MLX throws
// "Command buffer execution failed" with the reason.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define METAL_SIM_API __attribute__((visibility("default")))

// Sets one of the names above, for this process. Returns null on success, else
// an error message, to be freed with metal_sim_free. Fails if the device is
// already in use.
METAL_SIM_API char* metal_sim_configure(const char* name, const char* value);

// The number of dispatches of this kernel that have run (its host name, or the
// specialised name that MLX gave it); of all kernels for null.
METAL_SIM_API uint64_t metal_sim_dispatch_count(const char* kernel);

// {"<specialised name>": <dispatches>, …}, to be freed with metal_sim_free.
METAL_SIM_API char* metal_sim_dispatch_counts(void);

METAL_SIM_API void metal_sim_reset_counts(void);

// Starts to record every dispatch in memory.
METAL_SIM_API void metal_sim_trace_start(void);

// The records since the start or the last call, one JSON object per line, to be
// freed with metal_sim_free. They do not include work that is still in flight.
METAL_SIM_API char* metal_sim_trace_take(void);

METAL_SIM_API void metal_sim_trace_stop(void);

// Finds an element in [data, data + size) of a buffer that neither a kernel nor
// the host has written since the buffer was created. Elements have `element`
// bytes. Returns the offset of the first unwritten element from `data`, or
// SIZE_MAX if there is none. Memory outside every buffer counts as written.
METAL_SIM_API size_t
metal_sim_first_unwritten(const void* data, size_t size, size_t element);

METAL_SIM_API void metal_sim_free(char* text);

#ifdef __cplusplus
}
#endif
