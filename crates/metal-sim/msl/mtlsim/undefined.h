// Reports undefined behaviour that the compiler was asked to detect
// (-fsanitize=, src/toolchain.rs): a fault that names the place. The functions
// and their arguments are those of LLVM's runtime library,
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

#define MTLSIM_UNDEFINED \
  extern "C" [[noreturn, gnu::used, gnu::cold, gnu::visibility("hidden")]] void

MTLSIM_UNDEFINED __ubsan_handle_divrem_overflow_abort(
    mtlsim::Arithmetic* of,
    uintptr_t,
    uintptr_t) {
  mtlsim::Text text;
  text << "integer division by zero";
  mtlsim::undefined(MTLSIM_FAULT_DIVISION, text, of->at);
}

#ifdef MTLSIM_CHECKED

namespace mtlsim {
struct Mismatch {
  Place at;
  const TypeName* type;
  unsigned char log_alignment, what;
};
struct Index {
  Place at;
  const TypeName *array, *index;
};
struct Nowhere {
  Place at;
};
} // namespace mtlsim

MTLSIM_UNDEFINED __ubsan_handle_type_mismatch_v1_abort(
    mtlsim::Mismatch* of,
    uintptr_t address) {
  uint64_t wanted = uint64_t(1) << of->log_alignment;
  mtlsim::Text text;
  text << "access to " << of->type->text << " at an address that is "
       << uint64_t(address % wanted) << " past a multiple of " << wanted
       << " bytes,";
  mtlsim::undefined(MTLSIM_FAULT_UNDEFINED, text, of->at);
}
MTLSIM_UNDEFINED __ubsan_handle_out_of_bounds_abort(
    mtlsim::Index* of,
    uintptr_t index) {
  mtlsim::Text text;
  text << "index " << uint64_t(index) << " of an array of type "
       << of->array->text;
  mtlsim::undefined(MTLSIM_FAULT_OUT_OF_RANGE, text, of->at);
}
// Without _abort: execution could not continue.
MTLSIM_UNDEFINED __ubsan_handle_builtin_unreachable(mtlsim::Nowhere* of) {
  mtlsim::Text text;
  text << "code marked as unreachable is reached";
  mtlsim::undefined(MTLSIM_FAULT_UNDEFINED, text, of->at);
}
MTLSIM_UNDEFINED __ubsan_handle_missing_return(mtlsim::Nowhere* of) {
  mtlsim::Text text;
  text << "the end of a function that must return a value, declared";
  mtlsim::undefined(MTLSIM_FAULT_UNDEFINED, text, of->at);
}

#endif // MTLSIM_CHECKED
