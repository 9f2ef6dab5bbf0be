// Calls a kernel, compiled as a C++ function, for the lanes of a threadgroup.
// The generated part of a kernel's source describes its parameters in a class:
//
//   struct Parameters {
//     static constexpr mtlsim::Parameter list[];
//     static bool enabled(unsigned i);   // function_constant(...) of parameter
//     i
//   };
#pragma once

#include "atomic.h"
#include "matrix.h"

namespace mtlsim {

#if defined(MTLSIM_CHECKED)
inline constexpr uint32_t variant = MTLSIM_CHECKED_VARIANT;
#elif defined(MTLSIM_TRACKED)
inline constexpr uint32_t variant = MTLSIM_TRACKED_VARIANT;
#elif defined(MTLSIM_METER)
inline constexpr uint32_t variant = MTLSIM_METERED;
#else
inline constexpr uint32_t variant = MTLSIM_PLAIN;
#endif

enum Kind : uint8_t {
  kBuffer,
  kThreadgroup,
  kThreadPositionInGrid,
  kThreadPositionInThreadgroup,
  kThreadIndexInThreadgroup,
  kThreadIndexInSimdgroup,
  kThreadIndexInQuadgroup,
  kThreadgroupPositionInGrid,
  kThreadgroupsPerGrid,
  kThreadsPerGrid,
  kThreadsPerThreadgroup,
  kDispatchThreadsPerThreadgroup,
  kSimdgroupIndexInThreadgroup,
  kSimdgroupsPerThreadgroup,
  kThreadsPerSimdgroup,
  kQuadgroupIndexInThreadgroup,
  kQuadgroupsPerThreadgroup,
};

struct Parameter {
  Kind kind;
  uint8_t index;
  bool is_const;
  bool optional;
};

// The call of one threadgroup.
struct Call {
  const mtlsim_dispatch* dispatch;
  mtlsim_report* report;
  uint32_t position[3];
  uint32_t size[3]; // less than the dispatch's at an edge of the grid
  void* buffer[MTLSIM_BUFFER_SLOTS];
  unsigned char* dynamic[MTLSIM_THREADGROUP_SLOTS];
  uint32_t const_buffers; // bit per buffer index that the kernel may not write
  const mtlsim_argument* arguments;
  uint32_t argument_count;
#ifdef MTLSIM_CHECKED
  uint32_t place[MTLSIM_THREADGROUP_SLOTS]; // of threadgroup memory arguments
#endif
};
static constinit thread_local Call* call = nullptr; // set while lanes run

// Whether an address belongs to a function constant. Generated.
static bool is_constant(const void* address);
#ifdef MTLSIM_METER
inline void start_meter(const Call&);
#endif

// The threads of a grid or threadgroup, counted for a parameter of type P.
template <class P>
P position(const uint32_t (&v)[3]) {
  if constexpr (VectorOf<P>::size == 1)
    return P(v[0]);
  else if constexpr (VectorOf<P>::size == 2)
    return P{
        typename VectorOf<P>::element(v[0]),
        typename VectorOf<P>::element(v[1])};
  else
    return P{
        typename VectorOf<P>::element(v[0]),
        typename VectorOf<P>::element(v[1]),
        typename VectorOf<P>::element(v[2])};
}

template <Parameter D, class P>
[[gnu::always_inline]] inline P argument(const Call& c, uint32_t lane) {
  if constexpr (D.kind == kBuffer) {
    if constexpr (std::is_reference_v<P>)
      return *static_cast<std::remove_reference_t<P>*>(c.buffer[D.index]);
    else
      return static_cast<P>(c.buffer[D.index]);
  } else if constexpr (D.kind == kThreadgroup) {
    if constexpr (std::is_reference_v<P>)
      return *reinterpret_cast<std::remove_reference_t<P>*>(c.dynamic[D.index]);
    else
      return reinterpret_cast<P>(c.dynamic[D.index]);
  } else {
    uint32_t threads = c.size[0] * c.size[1] * c.size[2];
    auto within = [&](uint32_t(&v)[3]) {
      v[0] = lane % c.size[0];
      v[1] = lane / c.size[0] % c.size[1];
      v[2] = lane / c.size[0] / c.size[1];
    };
    auto whole = [](uint32_t n) { return P(n); };
    if constexpr (D.kind == kThreadPositionInGrid) {
      uint32_t v[3];
      within(v);
      for (int i = 0; i < 3; ++i)
        v[i] += c.position[i] * c.dispatch->threads_per_threadgroup[i];
      return position<P>(v);
    } else if constexpr (D.kind == kThreadPositionInThreadgroup) {
      uint32_t v[3];
      within(v);
      return position<P>(v);
    } else if constexpr (D.kind == kThreadgroupPositionInGrid)
      return position<P>(c.position);
    else if constexpr (D.kind == kThreadgroupsPerGrid)
      return position<P>(c.dispatch->threadgroups);
    else if constexpr (D.kind == kThreadsPerGrid)
      return position<P>(c.dispatch->threads);
    else if constexpr (D.kind == kThreadsPerThreadgroup)
      return position<P>(c.size);
    else if constexpr (D.kind == kDispatchThreadsPerThreadgroup)
      return position<P>(c.dispatch->threads_per_threadgroup);
    else if constexpr (D.kind == kThreadIndexInThreadgroup)
      return whole(lane);
    else if constexpr (D.kind == kThreadIndexInSimdgroup)
      return whole(lane % 32);
    else if constexpr (D.kind == kThreadIndexInQuadgroup)
      return whole(lane % 4);
    else if constexpr (D.kind == kSimdgroupIndexInThreadgroup)
      return whole(lane / 32);
    else if constexpr (D.kind == kQuadgroupIndexInThreadgroup)
      return whole(lane / 4);
    else if constexpr (D.kind == kSimdgroupsPerThreadgroup)
      return whole((threads + 31) / 32);
    else if constexpr (D.kind == kQuadgroupsPerThreadgroup)
      return whole((threads + 3) / 4);
    else
      return whole(32);
  }
}

template <class P>
constexpr uint32_t pointee_bytes() {
  using T = std::remove_pointer_t<std::remove_reference_t<P>>;
  if constexpr (std::is_void_v<T>)
    return 1;
  else if constexpr (
      std::is_pointer_v<std::remove_reference_t<P>> || std::is_reference_v<P>)
    return sizeof(T);
  else
    return 0;
}

// Digits and text for a report, without the C library.
struct Text {
  char data[256] = {};
  uint32_t size = 0;
  Text& operator<<(const char* s) {
    while (*s && size + 1 < sizeof data)
      data[size++] = *s++;
    return *this;
  }
  Text& operator<<(uint64_t n) {
    char digits[24];
    int i = 0;
    do
      digits[i++] = char('0' + n % 10);
    while (n /= 10);
    while (i) {
      char one[2] = {digits[--i], 0};
      *this << one;
    }
    return *this;
  }
};

inline int refuse(
    mtlsim_report* r,
    mtlsim_fault_code code,
    const uint32_t position[3],
    int slot,
    const Text& text) {
  if (!r->fault) {
    r->fault = code;
    r->slot = slot;
    for (int i = 0; i < 3; ++i)
      r->threadgroup[i] = position[i];
    __builtin_memcpy(r->message, text.data, sizeof text.data);
  }
  return int(code);
}

// Places buffers; false if one is too short for its type. An access through an
// unbound buffer faults: kernels may have arguments that they do not use.
template <class Parameters, class... P>
bool bind(Call& c, const mtlsim_argument* arguments) {
  constexpr uint32_t bytes[] = {pointee_bytes<P>()..., 0};
  constexpr bool reference[] = {std::is_reference_v<P>..., false};
  const auto& d = *c.dispatch;
  const mtlsim_argument* argument = arguments;
  for (uint32_t i = 0; i < sizeof...(P); ++i) {
    Parameter p = Parameters::list[i];
    if (p.kind > kThreadgroup)
      continue;
    const char* name = (argument++)->name;
    if (p.kind == kThreadgroup)
      continue;
    if (p.optional && !Parameters::enabled(i)) {
      c.buffer[p.index] = const_cast<void*>(here->zeros);
      continue;
    }
    if (!d.buffer[p.index]) {
      c.buffer[p.index] = here->unbound + p.index * mtlsim_lanes::kUnboundBytes;
      continue;
    }
    if (reference[i] && d.buffer_length[p.index] < bytes[i]) {
      Text t;
      t << "argument " << name << " at buffer index " << p.index << " has "
        << d.buffer_length[p.index] << " bytes; its type has " << bytes[i];
      return refuse(
                 c.report, MTLSIM_FAULT_SHORT_ARGUMENT, c.position, p.index, t),
             false;
    }
    c.buffer[p.index] = d.buffer[p.index];
    if (p.is_const)
      c.const_buffers |= 1u << p.index;
  }
  return true;
}

template <class Parameters, class... P, size_t... I>
[[gnu::always_inline]] inline void invoke(
    void (*f)(P...),
    const Call& c,
    uint32_t lane,
    std::index_sequence<I...>) {
  f(argument<Parameters::list[I], P>(c, lane)...);
}

// Runs one threadgroup of `F`.
template <class Parameters, auto F, class... P>
int run(
    void (*)(P...),
    const mtlsim_argument* arguments,
    uint32_t argument_count,
    const mtlsim_dispatch* dispatch,
    const uint32_t at[3],
    mtlsim_engine* engine,
    mtlsim_report* report) {
  here = reinterpret_cast<mtlsim_lanes*>(engine);
  Call c{};
  c.dispatch = dispatch;
  c.report = report;
  c.arguments = arguments;
  c.argument_count = argument_count;
  for (int i = 0; i < 3; ++i) {
    c.position[i] = at[i];
    uint32_t left =
        dispatch->threads[i] - at[i] * dispatch->threads_per_threadgroup[i];
    c.size[i] = left < dispatch->threads_per_threadgroup[i]
        ? left
        : dispatch->threads_per_threadgroup[i];
  }
  if (!bind<Parameters, P...>(c, arguments))
    return int(report->fault);
#ifdef MTLSIM_METER
  start_meter(c);
#endif
  uint32_t offset = (local_bytes + 15) / 16 * 16;
  uint32_t place[MTLSIM_THREADGROUP_SLOTS];
  for (int i = 0; i < MTLSIM_THREADGROUP_SLOTS; ++i) {
#ifdef MTLSIM_CHECKED
    offset += dispatch->threadgroup_length[i] ? gap : 0;
    c.place[i] = offset;
#endif
    place[i] = offset;
    offset += (dispatch->threadgroup_length[i] + 15) / 16 * 16;
  }
#ifdef MTLSIM_CHECKED
  offset += gap;
#endif
  // The engine places threadgroup memory; the offsets become addresses in the
  // first lane.
  struct Start {
    Call* call;
    const uint32_t* place;
  } start{&c, place};
  call = &c;
  int fault = here->run(
      here,
      dispatch,
      arguments,
      argument_count,
      c.size[0] * c.size[1] * c.size[2],
      offset,
      [](void* argument, uint32_t lane) {
        auto& s = *static_cast<Start*>(argument);
        if (!s.call->dynamic[0])
          for (int i = 0; i < MTLSIM_THREADGROUP_SLOTS; ++i)
            s.call->dynamic[i] = here->threadgroup_memory + s.place[i];
        invoke<Parameters>(F, *s.call, lane, std::index_sequence_for<P...>{});
        before_meeting();
      },
      &start,
      report);
  call = nullptr;
  if (fault)
    for (int i = 0; i < 3; ++i)
      report->threadgroup[i] = at[i];
  return fault;
}

template <class Parameters, class... P>
constexpr void describe(void (*)(P...), mtlsim_argument* out) {
  constexpr uint32_t bytes[] = {pointee_bytes<P>()..., 0};
  constexpr bool reference[] = {std::is_reference_v<P>..., false};
  for (uint32_t i = 0; i < sizeof...(P); ++i)
    if (Parameters::list[i].kind <= kThreadgroup) {
      out->minimum_bytes = bytes[i];
      out->is_reference = reference[i];
      ++out;
    }
}

// ---- function constants

template <class T>
constexpr uint32_t data_type() {
  if constexpr (std::is_same_v<T, bool>)
    return 53;
  else if constexpr (std::is_same_v<T, char> || std::is_same_v<T, signed char>)
    return 45;
  else if constexpr (std::is_same_v<T, uchar>)
    return 49;
  else if constexpr (std::is_same_v<T, short>)
    return 37;
  else if constexpr (std::is_same_v<T, ushort>)
    return 41;
  else if constexpr (std::is_same_v<T, int>)
    return 29;
  else if constexpr (std::is_same_v<T, uint>)
    return 33;
  else if constexpr (std::is_same_v<T, long>)
    return 81;
  else if constexpr (std::is_same_v<T, ulong>)
    return 85;
  else if constexpr (std::is_same_v<T, half>)
    return 16;
  else if constexpr (std::is_same_v<T, bfloat>)
    return 121;
  else {
    static_assert(
        std::is_same_v<T, float>, "no function constants of this type");
    return 3;
  }
}

// Reads constant `index` from the dispatch; false if it was set as another
// type.
template <class T>
bool set_constant(
    const mtlsim_dispatch* d,
    uint32_t index,
    const char* name,
    T& value,
    bool& defined,
    const uint32_t at[3],
    mtlsim_report* report) {
  value = T{};
  defined = false;
  for (uint32_t i = 0; i < d->constant_count; ++i) {
    const auto& c = d->constants[i];
    if (c.index != index)
      continue;
    if (c.type != data_type<T>()) {
      Text t;
      t << "function constant " << name << " (" << index
        << ") was set as MTLDataType " << c.type << "; the kernel declares "
        << data_type<T>();
      return refuse(report, MTLSIM_FAULT_CONSTANT_TYPE, at, -1, t), false;
    }
    __builtin_memcpy(&value, &c.raw, sizeof(T));
    defined = true;
  }
  return true;
}

} // namespace mtlsim

#define is_function_constant_defined(name) (mtlsim_defined_##name)

#if !defined(__FLT16_MANT_DIG__)
#error "this compiler has no _Float16 on this machine; use clang 16 or later"
#endif

// clang calls this to round a float to bfloat if the machine has no instruction
// for it; older runtime libraries lack it.
extern "C" [[gnu::visibility("hidden")]] bfloat __truncsfbf2(float x) {
  uint32_t u = __builtin_bit_cast(uint32_t, x);
  uint16_t r = (u & 0x7fffffff) > 0x7f800000
      ? uint16_t(u >> 16 | 0x40)
      : uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
  return __builtin_bit_cast(bfloat, r);
}
