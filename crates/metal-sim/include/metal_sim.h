// The simulated device, seen from a test: what it is, what it was asked to do
// and what it found. Every function may be called from any thread.
//
// A setting comes from metal_sim_configure, else from the environment variable
// of the same name, else it has the default given here. The first use of the
// device freezes them all; a value that is not understood is an error at that
// moment (a C++ exception out of MLX's device).
//
//   MTL_SIM_ARCH      applegpu_g15d: the GPU, g13 to g18 and one of p g s c d
//   MTL_SIM_OS        26.0: what __builtin_available compares with
//   MTL_SIM_MEMORY    the host's: bytes of the machine, K, M, G allowed
//   MTL_SIM_MAX_THREADS   1024: in one threadgroup
//   MTL_SIM_THREADS   the host's cores: threadgroups run at once
//   MTL_SIM_PAGE      16384: what MLX rounds allocations up to
//   MTL_SIM_SIMD_SUM  butterfly: order of simd_sum (see engine/engine.h)
//   MTL_SIM_COMPILER  the one of the build: path of metal-simc
//   MTL_SIM_TRACE     a file that gets one JSON line a dispatch
//   MTL_SIM_RUN       1: kernels run; 0: they are compiled, bound, counted and
//                     traced, and do nothing, to see what is dispatched
//
// and the detectors, each 0 or 1 unless said otherwise:
//
//   MTL_SIM_GUARD     0: memory faults where an access leaves its buffer, and
//                     where it was freed
//   MTL_SIM_UNWRITTEN 1: an output that a kernel left unwritten in part; what
//                     a kernel reads before one wrote it is the host's data
//   MTL_SIM_STALE     0: an argument that was bound before the current
//                     pipeline state was set
//   MTL_SIM_SHUFFLE   none: a seed; dispatches that no barrier, fence or event
//                     orders run in a random order, and so do threadgroups
//   MTL_SIM_METER     0: count bytes by buffer, check every access (slower)
//   MTL_SIM_CHECK     0: access: kernels are compiled to find races, misaligned
//                     accesses, arrays out of bounds, reads of inactive lanes
//                     and of unwritten outputs; init: to find what depends on
//                     values that nobody wrote (README.md: what each costs)
//   MTL_SIM_WATCHDOG  60: a threadgroup that has not ended after so many
//                     seconds of processor time is a fault, 0 for no limit
//
// What a detector finds makes the command buffer fail, as a fault of a GPU
// does: MLX throws "Command buffer execution failed" with the reason.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define METAL_SIM_API __attribute__((visibility("default")))

// Sets one of the names above, for this process. Null on success, else what
// is wrong with it, to be freed with metal_sim_free: also when the device is
// already in use.
METAL_SIM_API char* metal_sim_configure(const char* name, const char* value);

// How many dispatches of this kernel (its host name, or the specialised name
// that MLX gave it) have run; of all kernels for null.
METAL_SIM_API uint64_t metal_sim_dispatch_count(const char* kernel);

// {"<specialised name>": <dispatches>, …}, to be freed with metal_sim_free.
METAL_SIM_API char* metal_sim_dispatch_counts(void);

METAL_SIM_API void metal_sim_reset_counts(void);

// From here on keeps a record of every dispatch in memory.
METAL_SIM_API void metal_sim_trace_start(void);

// The records since the start or the last call, one JSON object a line, to be
// freed with metal_sim_free. Work that is still in flight is not in it.
METAL_SIM_API char* metal_sim_trace_take(void);

METAL_SIM_API void metal_sim_trace_stop(void);

// Whether all of [data, data + size) in a buffer of the device was written
// since it was made, by a kernel or by the host, judged in elements of
// `element` bytes. Returns the offset of the first unwritten element from
// `data`, SIZE_MAX where there is none. Memory that belongs to no buffer counts
// as written.
METAL_SIM_API size_t
metal_sim_first_unwritten(const void* data, size_t size, size_t element);

METAL_SIM_API void metal_sim_free(char* text);

#ifdef __cplusplus
}
#endif
