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

// The state that a thread needs to run kernels. Every queue makes one on its
// own thread.
class KernelThread {
 public:
  KernelThread() = default;
  KernelThread(const KernelThread&) = delete;
  KernelThread& operator=(const KernelThread&) = delete;

  // Gives the thread lanes on which to run threadgroups, while this exists.
  class Lanes {
   public:
    explicit Lanes(KernelThread& thread);
    ~Lanes();
    Lanes(const Lanes&) = delete;
    Lanes& operator=(const Lanes&) = delete;

   private:
    KernelThread& thread_;
  };

  // Runs one threadgroup and adds to the report. Returns the fault code, and
  // for a memory fault the address. The thread must have lanes.
  int run(
      const mtlsim_kernel& kernel,
      const mtlsim_dispatch& dispatch,
      const Extent& position,
      mtlsim_report& report,
      const void*& address);

 private:
  FaultTrap trap_;
  mtlsim_engine* engine_{nullptr};
};

// Returns when every threadgroup has run, or after a fault. `seed` changes the
// order of the threadgroups.
Outcome execute(
    const Dispatch& dispatch,
    KernelThread& self,
    std::optional<std::uint64_t> seed);

} // namespace metalsim
