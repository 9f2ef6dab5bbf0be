// What a kernel does that the language leaves undefined, where the compiler was
// asked to look for it (-fsanitize=, src/toolchain.rs): a fault that names the
// place. The functions and what they get are those of LLVM's runtime library,
// compiler-rt/lib/ubsan/ubsan_handlers.h.
#pragma once

#include "kernel.h"

namespace mtlsim {

struct Place {
  const char* file;
  uint32_t line, column;
};
struct TypeName {
  uint16_t kind, info; // info: of an integer twice log2 of its bits, 1: signed
  char text[1];
};

[[noreturn, gnu::cold, gnu::noinline]] inline void
undefined(mtlsim_fault_code code, const Text& what, const Place& at) {
  Text text = what;
  text << " at " << (at.file ? at.file : "?") << ":" << uint64_t(at.line);
  here->fail(here, code, -1, 0, text.data);
  __builtin_unreachable();
}

struct Arithmetic {
  Place at;
  const TypeName* type;
};

} // namespace mtlsim

#define MTLSIM_UNDEFINED                                                 \
  extern "C" [[noreturn, gnu::used, gnu::cold, gnu::visibility("hidden")]] \
  void

MTLSIM_UNDEFINED __ubsan_handle_divrem_overflow_abort(
    mtlsim::Arithmetic* of,
    uintptr_t,
    uintptr_t) {
  mtlsim::Text text;
  text << "integer division by zero";
  mtlsim::undefined(MTLSIM_FAULT_DIVISION, text, of->at);
}
