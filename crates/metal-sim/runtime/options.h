// The settings of the simulated device (include/metal_sim.h lists them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace metalsim {

struct Version {
  int major{0};
  int minor{0};
  auto operator<=>(const Version&) const = default;
};

// The checks compiled into kernels.
enum class Check { Nothing, Access, Init };

struct Options {
  std::string arch{"applegpu_g15d"};
  Version os{26, 0};
  std::size_t memory{0};
  std::uint32_t max_threads{1024};
  std::uint32_t threadgroup_memory{32768};
  std::uint32_t threads{0};
  std::size_t page{16384};
  std::uint32_t simd_sum{0};
  std::string compiler;
  std::string trace;
  bool guard{false};
  bool unwritten{true};
  bool stale{false};
  bool run{true};
  std::optional<std::uint64_t> shuffle;
  bool meter{false};
  Check check{Check::Nothing};
  std::uint32_t watchdog{60};
};

// Freezes the settings at the first call. Throws std::invalid_argument, naming
// the setting, for an invalid value.
const Options& options();

// Sets a setting. Returns an error message, or an empty text on success.
std::string configure(const std::string& name, const std::string& value);

} // namespace metalsim
