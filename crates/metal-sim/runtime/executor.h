// Runs the threadgroups of a dispatch on all cores.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "runtime/commands.h"
#include "runtime/fault.h"

namespace metalsim {

struct Outcome {
  std::optional<Fault> fault;
  // Bytes by buffer index; counted by metered kernels only.
  std::array<std::uint64_t, MTLSIM_BUFFER_SLOTS> loaded{};
  std::array<std::uint64_t, MTLSIM_BUFFER_SLOTS> stored{};
};

// What a thread needs to run kernels. Every queue makes one on its own thread.
class KernelThread {
 public:
  KernelThread();
  ~KernelThread();
  KernelThread(const KernelThread&) = delete;
  KernelThread& operator=(const KernelThread&) = delete;

  // Runs one threadgroup and adds to the report. Returns the fault code, and
  // the address where it was a memory fault.
  int run(
      const mtlsim_kernel& kernel,
      const mtlsim_dispatch& dispatch,
      const Extent& position,
      mtlsim_report& report,
      const void*& address);

 private:
  FaultTrap trap_;
  mtlsim_engine* const engine_;
};

// Returns when every threadgroup has run, or after a fault. `seed` puts the
// threadgroups in another order.
Outcome execute(
    const Dispatch& dispatch,
    KernelThread& self,
    std::optional<std::uint64_t> seed);

} // namespace metalsim
