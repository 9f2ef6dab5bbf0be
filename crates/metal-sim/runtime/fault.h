// What went wrong on the simulated device, and how a memory fault inside a
// kernel becomes one instead of a crash.
#pragma once

#include <signal.h>
#include <string>

#include <Metal/Metal.hpp>

#include "engine.h"

namespace metalsim {

struct Fault {
  MTL::CommandBufferError code{MTL::CommandBufferErrorInternal};
  std::string text;
};

// Turns a memory fault of the kernel that runs on this thread into a fault of
// its engine. One of these lives on the stack of every thread that runs
// kernels.
class FaultTrap {
 public:
  FaultTrap();
  ~FaultTrap();
  FaultTrap(const FaultTrap&) = delete;
  FaultTrap& operator=(const FaultTrap&) = delete;

  // From here to disarm() a memory fault is the engine's.
  void arm(mtlsim_engine* engine) {
    address_ = nullptr;
    engine_ = engine;
  }
  void disarm() {
    engine_ = nullptr;
  }
  // Of the fault since it was last armed, else null.
  const void* address() const {
    return address_;
  }

 private:
  static void install();
  static void handle(int signal, siginfo_t* info, void* context);
  static void abandon();

  static thread_local FaultTrap* current_;

  mtlsim_engine* volatile engine_{nullptr};
  void* volatile address_{nullptr};
  void* stack_{nullptr};
  stack_t previous_stack_{};
};

} // namespace metalsim
