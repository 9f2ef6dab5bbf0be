// Errors on the simulated device, and how a memory fault inside a kernel
// becomes one instead of a crash.
#pragma once

#include <setjmp.h>
#include <signal.h>
#include <time.h>
#include <cstdint>
#include <optional>
#include <string>

#include <Metal/Metal.hpp>

#include "engine.h"

namespace metalsim {

struct Fault {
  MTL::CommandBufferError code{MTL::CommandBufferErrorInternal};
  std::string text;
};

// Turns errors that would end the process into a fault of the engine whose
// kernel runs on this thread: a bad address, a division without a result, a
// threadgroup that does not end. One of these is on the stack of every thread
// that runs kernels.
class FaultTrap {
 public:
  FaultTrap();
  ~FaultTrap();
  FaultTrap(const FaultTrap&) = delete;
  FaultTrap& operator=(const FaultTrap&) = delete;

  // Once for the process.
  static void install();

  // From here to disarm() a fault belongs to the engine.
  void arm(mtlsim_engine* engine) {
    address_ = nullptr;
    left_ = false;
    runs_ = runs_ + 1;
    engine_ = engine;
  }
  void disarm() {
    engine_ = nullptr;
  }
  // Set with sigsetjmp() before arm(). A fault outside of the lanes, in the
  // code around a kernel, comes back here with the number of its signal: the
  // engine cannot abandon what it does not run.
  sigjmp_buf& outside() {
    return outside_;
  }
  // What happened there.
  std::string describe_outside(int signal) const;
  // The address of the last memory fault since arm(), else null.
  const void* address() const {
    return address_;
  }

 private:
  static void handle(int signal, siginfo_t* info, void* context);
  static void abandon();
  static void leave();
  bool is_late();
  void start_watchdog();

  static thread_local FaultTrap* current_;

  mtlsim_engine* volatile engine_{nullptr};
  void* volatile address_{nullptr};
  volatile int signal_{0};
  volatile int code_{0};
  void* stack_{nullptr};
  stack_t previous_stack_{};
  sigjmp_buf outside_;
  volatile bool left_{false}; // once for each arm()

  // The watchdog counts the thread's processor time, so that a busy machine is
  // not taken for an endless loop.
  std::optional<timer_t> watchdog_;
  volatile std::uint64_t runs_{0}; // threadgroups
  std::uint64_t seen_{0}; // runs_ at the last tick
  int ticks_{0}; // since then
};

} // namespace metalsim
