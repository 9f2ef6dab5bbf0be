#include "runtime/fault.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <cstdint>
#include <mutex>

#include "runtime/misuse.h"

namespace metalsim {
namespace {

constexpr std::size_t signal_stack_bytes = 64 << 10;

struct sigaction previous_segv;
struct sigaction previous_bus;

// Not ours: to whoever handled it before.
void pass_on(int signal, siginfo_t* info, void* context) {
  auto& previous = signal == SIGSEGV ? previous_segv : previous_bus;
  if (previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    // The access is repeated and ends the process as it would have.
    sigaction(signal, &previous, nullptr);
  }
}

// Makes the handler return to `to`, on the stack that ends at `top`, instead of
// to the instruction that faulted. False where it is not known how.
bool return_to(
    [[maybe_unused]] void* context,
    [[maybe_unused]] void (*to)(),
    [[maybe_unused]] std::uintptr_t top) {
#if defined(__x86_64__)
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  registers[REG_RIP] = reinterpret_cast<greg_t>(to);
  // As after a call: the return address would lie here.
  registers[REG_RSP] = static_cast<greg_t>(top - 8);
  return true;
#elif defined(__aarch64__)
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
  registers.pc = reinterpret_cast<std::uintptr_t>(to);
  registers.sp = top;
  return true;
#else
  return false;
#endif
}

} // namespace

thread_local FaultTrap* FaultTrap::current_ = nullptr;

void FaultTrap::handle(int signal, siginfo_t* info, void* context) {
  auto* trap = current_;
  if (!trap || !trap->engine_) {
    pass_on(signal, info, context);
    return;
  }
  trap->address_ = info->si_addr;
  // The lane's own stack may be what overflowed; the signal stack is free again
  // once the handler has returned.
  auto top =
      reinterpret_cast<std::uintptr_t>(trap->stack_) + signal_stack_bytes;
  if (!return_to(context, abandon, top)) {
    abandon();
  }
}

void FaultTrap::abandon() {
  auto* trap = current_;
  mtlsim_engine_abandon(trap->engine_, trap->address_);
}

void FaultTrap::install() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = handle;
    // Where the handler cannot return elsewhere it is left for good, so the
    // signal stays unblocked; a lane that ran out of stack needs another one.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous_segv);
    sigaction(SIGBUS, &action, &previous_bus);
  });
}

FaultTrap::FaultTrap() {
  install();
  stack_ = ::mmap(
      nullptr,
      signal_stack_bytes,
      PROT_READ | PROT_WRITE,
      MAP_PRIVATE | MAP_ANONYMOUS,
      -1,
      0);
  if (stack_ == MAP_FAILED) {
    misuse("no memory for a signal stack");
  }
  stack_t stack{};
  stack.ss_sp = stack_;
  stack.ss_size = signal_stack_bytes;
  sigaltstack(&stack, &previous_stack_);
  current_ = this;
}

FaultTrap::~FaultTrap() {
  current_ = nullptr;
  sigaltstack(&previous_stack_, nullptr);
  ::munmap(stack_, signal_stack_bytes);
}

} // namespace metalsim
