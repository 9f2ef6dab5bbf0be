#include "context.h"

#include <cstring>

#ifndef MTLSIM_UCONTEXT
extern "C" void mtlsim_context_swap(void** save, void* load);
extern "C" void mtlsim_context_start();

#if defined(__x86_64__)
// System V: callee-saved registers; kernels never change the floating-point
// control words. A new stack has zeros for the six registers and the address of
// mtlsim_context_start, with entry in rbx and argument in r12.
asm(R"(
.text
.globl mtlsim_context_swap
.hidden mtlsim_context_swap
.type mtlsim_context_swap,@function
mtlsim_context_swap:
  .cfi_startproc
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .cfi_endproc
.size mtlsim_context_swap,.-mtlsim_context_swap
.globl mtlsim_context_start
.hidden mtlsim_context_start
.type mtlsim_context_start,@function
mtlsim_context_start:
  .cfi_startproc
  .cfi_undefined rip
  movq %r12, %rdi
  callq *%rbx
  ud2
  .cfi_endproc
.size mtlsim_context_start,.-mtlsim_context_start
)");
static constexpr int kFrameWords =
    9; // six registers, return address; the stack is aligned once they are gone
static void fill_frame(void** frame, void (*entry)(void*), void* argument) {
  frame[3] = argument; // r12
  frame[4] = reinterpret_cast<void*>(entry); // rbx
  frame[6] = reinterpret_cast<void*>(&mtlsim_context_start);
}
#elif defined(__aarch64__)
// AAPCS64: x19-x30 and the low halves of v8-v15.
asm(R"(
.text
.globl mtlsim_context_swap
.hidden mtlsim_context_swap
.type mtlsim_context_swap,%function
mtlsim_context_swap:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size mtlsim_context_swap,.-mtlsim_context_swap
.globl mtlsim_context_start
.hidden mtlsim_context_start
.type mtlsim_context_start,%function
mtlsim_context_start:
  mov x0, x20
  blr x19
  brk #1
.size mtlsim_context_start,.-mtlsim_context_start
)");
static constexpr int kFrameWords = 20;
static void fill_frame(void** frame, void (*entry)(void*), void* argument) {
  frame[0] = reinterpret_cast<void*>(entry); // x19
  frame[1] = argument; // x20
  frame[11] = reinterpret_cast<void*>(&mtlsim_context_start); // x30
}
#endif
#endif // MTLSIM_UCONTEXT

namespace mtlsim {

#ifdef MTLSIM_UCONTEXT
namespace {
// makecontext passes ints only.
void trampoline(
    unsigned entry_low,
    unsigned entry_high,
    unsigned argument_low,
    unsigned argument_high) {
  auto join = [](unsigned low, unsigned high) {
    return uintptr_t(low) | (uintptr_t(high) << 16 << 16);
  };
  reinterpret_cast<void (*)(void*)>(join(entry_low, entry_high))(
      reinterpret_cast<void*>(join(argument_low, argument_high)));
}
} // namespace
#endif

void context_prepare(
    Context& context,
    void* bottom,
    size_t size,
    void (*entry)(void*),
    void* argument) {
#ifdef MTLSIM_UCONTEXT
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = bottom;
  context.state.uc_stack.ss_size = size;
  context.state.uc_link = nullptr;
  auto e = reinterpret_cast<uintptr_t>(entry),
       a = reinterpret_cast<uintptr_t>(argument);
  makecontext(
      &context.state,
      reinterpret_cast<void (*)()>(&trampoline),
      4,
      unsigned(e),
      unsigned(e >> 16 >> 16),
      unsigned(a),
      unsigned(a >> 16 >> 16));
#else
  auto top = (reinterpret_cast<uintptr_t>(bottom) + size) & ~uintptr_t(15);
  auto** frame = reinterpret_cast<void**>(top) - kFrameWords;
  memset(frame, 0, kFrameWords * sizeof(void*));
  fill_frame(frame, entry, argument);
  context.stack_pointer = frame;
#endif
#ifdef MTLSIM_ASAN
  context.stack_bottom = bottom;
  context.stack_size = size;
  context.fake_stack = nullptr;
#endif
}

void context_switch(Context& from, Context& to, bool leave) {
#ifdef MTLSIM_ASAN
  __sanitizer_start_switch_fiber(
      leave ? nullptr : &from.fake_stack, to.stack_bottom, to.stack_size);
#else
  (void)leave;
#endif
#ifdef MTLSIM_UCONTEXT
  swapcontext(&from.state, &to.state);
#else
  mtlsim_context_swap(&from.stack_pointer, to.stack_pointer);
#endif
#ifdef MTLSIM_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void context_entered(Context& host) {
#ifdef MTLSIM_ASAN
  // The first entry comes from the host's own stack, whose bounds are known
  // only here.
  const void* bottom = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
  if (!host.stack_bottom) {
    host.stack_bottom = bottom;
    host.stack_size = size;
  }
#else
  (void)host;
#endif
}

} // namespace mtlsim
