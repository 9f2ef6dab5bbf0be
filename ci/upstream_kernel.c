// A kernel that does nothing: ci/upstream-tests.sh uses it to find out which
// kernels a test needs, without compiling them. The script writes a kernel's
// name over NAME in a copy of the library.
#include "kernel_abi.h"

static const char name[1024] = "NAME: written by ci/upstream-tests.sh";

static uint32_t no_threadgroup_memory(void) {
  return 0;
}

static int do_nothing(
    const mtlsim_dispatch* dispatch,
    const uint32_t position[3],
    mtlsim_engine* engine,
    mtlsim_report* report) {
  (void)dispatch, (void)position, (void)engine, (void)report;
  return MTLSIM_OK;
}

const mtlsim_kernel mtlsim_kernel_entry = {
    .abi_version = MTLSIM_ABI_VERSION,
    .variant = MTLSIM_PLAIN,
    .host_name = name,
    .source = "ci/upstream_kernel.c",
    .max_threads = MTLSIM_MAX_THREADS,
    .static_threadgroup_bytes = no_threadgroup_memory,
    .run = do_nothing,
};
