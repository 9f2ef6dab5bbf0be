// The two values that MLX asks the kernel for: hw.memsize and
// iogpu.rsrc_limit, both of the simulated machine.
#pragma once

#include <cstddef>

extern "C" int sysctlbyname(
    const char* name,
    void* value,
    std::size_t* size,
    void* new_value,
    std::size_t new_size);
