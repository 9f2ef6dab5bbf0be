// MLX's queries of the operating system: its version, its page size, the memory
// of the machine.
#include <cerrno>
#include <cstring>
#include <string_view>

#include <mach/vm_page_size.h>
#include <sys/sysctl.h>
#include <Foundation/NSAvailability.hpp>

#include "runtime/misuse.h"
#include "runtime/options.h"

namespace metalsim {

// `platforms` is the argument list as text: "macOS 26.2, iOS 26.2, *". The
// simulated machine is a Mac.
bool os_available(const char* platforms) {
  constexpr std::string_view system = "macOS";
  std::string_view text = platforms;
  auto at = text.find(system);
  if (at == text.npos) {
    return text.find('*') != text.npos;
  }
  Version wanted;
  int* part = &wanted.major;
  for (char c : text.substr(at + system.size())) {
    if (c >= '0' && c <= '9') {
      *part = *part * 10 + (c - '0');
    } else if (c == '.' && part == &wanted.major) {
      part = &wanted.minor;
    } else if (c != ' ') {
      break;
    }
  }
  return options().os >= wanted;
}

std::size_t page_size() {
  return options().page;
}

} // namespace metalsim

extern "C" int sysctlbyname(
    const char* name,
    void* value,
    std::size_t* size,
    void* new_value,
    std::size_t) {
  std::uint64_t result;
  if (!std::strcmp(name, "hw.memsize")) {
    result = metalsim::options().memory;
  } else if (!std::strcmp(name, "iogpu.rsrc_limit")) {
    result = 499000;
  } else {
    errno = ENOENT;
    return -1;
  }
  if (!value || !size || *size < sizeof(result) || new_value) {
    errno = EINVAL;
    return -1;
  }
  std::memcpy(value, &result, sizeof(result));
  *size = sizeof(result);
  return 0;
}
