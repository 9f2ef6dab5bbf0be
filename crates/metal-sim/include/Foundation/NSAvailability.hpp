// On Apple systems the compiler implements `__builtin_available(macOS 26.2, iOS
// 26.2, *)`. Here it compares with the simulated version (MTL_SIM_OS).
#pragma once

namespace metalsim {

bool os_available(const char* platforms);

} // namespace metalsim

#define __builtin_available(...) (::metalsim::os_available(#__VA_ARGS__))
