// Switches between stacks: in assembly on known processors, else with ucontext
// (also if MTLSIM_UCONTEXT is defined; slower, because it saves the signal mask
// too).
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(MTLSIM_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define MTLSIM_UCONTEXT 1
#endif

#ifdef MTLSIM_UCONTEXT
#include <ucontext.h>
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MTLSIM_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define MTLSIM_ASAN 1
#endif
#ifdef MTLSIM_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace mtlsim {

struct Context {
#ifdef MTLSIM_UCONTEXT
  ucontext_t state;
#else
  void* stack_pointer = nullptr;
#endif
#ifdef MTLSIM_ASAN
  const void* stack_bottom = nullptr;
  size_t stack_size = 0;
  void* fake_stack = nullptr;
#endif
};

// Makes `context` start `entry(argument)` on the stack [bottom, bottom + size)
// at the next switch to it. `entry` must not return.
void context_prepare(
    Context& context,
    void* bottom,
    size_t size,
    void (*entry)(void*),
    void* argument);

// Saves the current state in `from` and continues `to`. With `leave`, `from` is
// never continued.
void context_switch(Context& from, Context& to, bool leave = false);

// The first call in a context's entry.
void context_entered(Context& from);

} // namespace mtlsim
