#include "runtime/fault.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <algorithm>
#include <iterator>
#include <mutex>

#include "runtime/misuse.h"
#include "runtime/options.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace metalsim {
namespace {

constexpr std::size_t signal_stack_bytes = 64 << 10;
// Ticks of the watchdog in a threadgroup's time limit.
constexpr int watchdog_ticks = 4;
constexpr int tick_signal = SIGVTALRM;
constexpr int signals[] =
    {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, tick_signal};

struct sigaction previous[std::size(signals)];
// Our timers pass this address; others may use the signal as well.
char ours;

// Passes a signal that is not ours to the previous handler.
void pass_on(int signal, siginfo_t* info, void* context) {
  auto which = std::find(std::begin(signals), std::end(signals), signal);
  auto& before = previous[which - std::begin(signals)];
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else if (before.sa_handler == SIG_DFL || info->si_code > 0) {
    // The instruction is repeated and ends the process as without the handler;
    // a signal that was sent is sent again.
    sigaction(signal, &before, nullptr);
    if (info->si_code <= 0) {
      raise(signal);
    }
  }
}

const void* stack_pointer([[maybe_unused]] void* context) {
#if defined(__x86_64__)
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  return reinterpret_cast<const void*>(registers[REG_RSP]);
#elif defined(__aarch64__)
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
  return reinterpret_cast<const void*>(registers.sp);
#else
  return nullptr;
#endif
}

// Makes the handler return to `to`, on the stack that ends at `top`, instead of
// to the instruction that faulted. False on an unknown processor.
bool return_to(
    [[maybe_unused]] void* context,
    [[maybe_unused]] void (*to)(),
    [[maybe_unused]] std::uintptr_t top) {
#if defined(__x86_64__)
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  registers[REG_RIP] = reinterpret_cast<greg_t>(to);
  // A call would leave the return address here.
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
  if (signal == tick_signal && info->si_code == SI_TIMER &&
      info->si_value.sival_ptr == &ours) {
    if (!trap || !trap->is_late(context)) {
      return;
    }
  } else if (!trap || !trap->engine_ || info->si_code <= 0) {
    pass_on(signal, info, context);
    return;
  }
  trap->signal_ = signal;
  trap->code_ = info->si_code;
  if (signal == SIGSEGV || signal == SIGBUS) {
    trap->address_ = info->si_addr;
  }
  // The lane's own stack may have overflowed; the signal stack is free again
  // once the handler has returned.
  auto top =
      reinterpret_cast<std::uintptr_t>(trap->stack_) + signal_stack_bytes;
  if (!return_to(context, abandon, top)) {
    abandon();
  }
}

// Whether one threadgroup has used all of its time, and a lane of it runs.
bool FaultTrap::is_late(void* context) {
  if (!engine_ || seen_ != runs_) {
    seen_ = runs_;
    ticks_ = 0;
    return false;
  }
  return ++ticks_ >= watchdog_ticks &&
      mtlsim_engine_in_lane(engine_, stack_pointer(context));
}

void FaultTrap::abandon() {
  auto* trap = current_;
  if (trap->signal_ == tick_signal) {
    mtlsim_engine_give_up(trap->engine_, options().watchdog);
  } else {
    mtlsim_engine_abandon(
        trap->engine_, trap->signal_, trap->code_, trap->address_);
  }
}

void FaultTrap::install() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = handle;
    // If the handler cannot return elsewhere, it is left permanently, so the
    // signal stays unblocked; a lane that ran out of stack needs another one.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < std::size(signals); i++) {
      sigaction(signals[i], &action, &previous[i]);
    }
  });
}

// If the system has no timers left, endless loops stay endless.
void FaultTrap::start_watchdog() {
  if (options().watchdog == 0) {
    return;
  }
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = tick_signal;
  event.sigev_value.sival_ptr = &ours;
  event.sigev_notify_thread_id = static_cast<pid_t>(::syscall(SYS_gettid));
  timer_t timer;
  if (::timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0) {
    return;
  }
  watchdog_ = timer;
  constexpr long long second = 1'000'000'000;
  auto tick = options().watchdog * second / watchdog_ticks;
  itimerspec times{};
  times.it_interval.tv_sec = static_cast<time_t>(tick / second);
  times.it_interval.tv_nsec = static_cast<long>(tick % second);
  times.it_value = times.it_interval;
  ::timer_settime(timer, 0, &times, nullptr);
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
  start_watchdog();
}

FaultTrap::~FaultTrap() {
  if (watchdog_) {
    ::timer_delete(*watchdog_);
  }
  current_ = nullptr;
  sigaltstack(&previous_stack_, nullptr);
  ::munmap(stack_, signal_stack_bytes);
}

} // namespace metalsim
