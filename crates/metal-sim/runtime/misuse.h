// A program error that Metal's own validation answers with an abort.
#pragma once

#include <string_view>

namespace metalsim {

[[noreturn]] void misuse(std::string_view what);

} // namespace metalsim
