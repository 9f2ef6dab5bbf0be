// The shim for checking address spaces: types and declarations only, never run.
// `thread` is the default space, as in Metal, so a missing qualifier counts as
// a wrong one.
#pragma once

#define mtlsim_space_device __attribute__((address_space(1)))
#define mtlsim_space_constant __attribute__((address_space(2)))
#define mtlsim_space_threadgroup __attribute__((address_space(3)))

#include "atomic_types.h"
#include "matrix.h"

namespace mtlsim {
template <class T, int Declaration>
mtlsim_space_threadgroup T& local();

// The type of a function's parameter.
template <int I, class F>
struct ParameterOf;
template <int I, class... P>
struct ParameterOf<I, void (*const)(P...)>
    : std::tuple_element<I, std::tuple<P...>> {};
template <int I, class F>
using Parameter = typename ParameterOf<I, F>::type;

// Types allowed for a parameter with the attribute of a count or a position.
template <class T>
inline constexpr bool is_count =
    std::is_same_v<T, ushort> || std::is_same_v<T, uint>;
template <class T>
inline constexpr bool is_position =
    is_count<typename VectorOf<T>::element>&& VectorOf<T>::size <= 3;
template <class A, class B>
inline constexpr bool same_size = VectorOf<A>::size == 1 ||
    VectorOf<B>::size == 1 || VectorOf<A>::size == VectorOf<B>::size;
// Types allowed for a function constant.
template <class T>
inline constexpr bool is_constant_type =
    metal::is_arithmetic_v<typename VectorOf<T>::element>;
} // namespace mtlsim

namespace metal {

// `only` refuses a call according to its template argument T.
#define MTLSIM_FETCH(space, name, only)                                   \
  template <class T>                                                      \
  MTLSIM_FETCHED_##name only T atomic_fetch_##name##_explicit(            \
      volatile space atomic<T>*, mtlsim::Identity<T>, memory_order order) \
      MTLSIM_RELAXED(order);
#define MTLSIM_ATOMICS(space, only)                                       \
  template <class T>                                                      \
  only T atomic_load_explicit(                                            \
      const volatile space atomic<T>*, memory_order order)                \
      MTLSIM_RELAXED(order);                                              \
  template <class T>                                                      \
  only void atomic_store_explicit(                                        \
      volatile space atomic<T>*, mtlsim::Identity<T>, memory_order order) \
      MTLSIM_RELAXED(order);                                              \
  template <class T>                                                      \
  only T atomic_exchange_explicit(                                        \
      volatile space atomic<T>*, mtlsim::Identity<T>, memory_order order) \
      MTLSIM_RELAXED(order);                                              \
  template <class T>                                                      \
  only bool atomic_compare_exchange_weak_explicit(                        \
      volatile space atomic<T>*,                                          \
      T*,                                                                 \
      mtlsim::Identity<T>,                                                \
      memory_order order,                                                 \
      memory_order failed) MTLSIM_RELAXED(order) MTLSIM_RELAXED(failed);  \
  MTLSIM_FETCH(space, add, only)                                          \
  MTLSIM_FETCH(space, sub, only)                                          \
  MTLSIM_FETCH(space, and, only)                                          \
  MTLSIM_FETCH(space, or, only)                                           \
  MTLSIM_FETCH(space, xor, only)                                          \
  MTLSIM_FETCH(space, min, only)                                          \
  MTLSIM_FETCH(space, max, only)
#define MTLSIM_NO_FLOAT           \
  MTLSIM_REFUSE(                  \
      (std::is_same_v<T, float>), \
      "6.15.4",                   \
      "an atomic_float must be in device memory, not in threadgroup memory")
MTLSIM_ATOMICS(mtlsim_space_device, )
MTLSIM_ATOMICS(mtlsim_space_threadgroup, MTLSIM_NO_FLOAT)
#undef MTLSIM_ATOMICS
#undef MTLSIM_FETCH
#undef MTLSIM_NO_FLOAT
void atomic_min_explicit(
    volatile mtlsim_space_device atomic_ulong*,
    ulong,
    memory_order order) MTLSIM_RELAXED(order);
void atomic_max_explicit(
    volatile mtlsim_space_device atomic_ulong*,
    ulong,
    memory_order order) MTLSIM_RELAXED(order);

void atomic_thread_fence(
    mem_flags,
    memory_order = memory_order_seq_cst,
    thread_scope = thread_scope_device);

} // namespace metal

#define is_function_constant_defined(name) (mtlsim_defined_##name)
