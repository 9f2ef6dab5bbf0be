// A program error for which Metal's own validation aborts.
#pragma once

#include <string_view>

namespace metalsim {

[[noreturn]] void misuse(std::string_view what);

} // namespace metalsim
