// MLX rounds allocations up to this many bytes: 16 KiB as on Apple silicon, or
// MTL_SIM_PAGE. A small page makes guard pages exact.
#pragma once

#include <cstddef>

namespace metalsim {

std::size_t page_size();

} // namespace metalsim

// A variable of the system on Apple's side.
#define vm_page_size (::metalsim::page_size())
