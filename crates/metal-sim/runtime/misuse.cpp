#include "runtime/misuse.h"

#include <cstdio>
#include <cstdlib>

namespace metalsim {

void misuse(std::string_view what) {
  std::fprintf(
      stderr, "metal-sim: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

} // namespace metalsim
