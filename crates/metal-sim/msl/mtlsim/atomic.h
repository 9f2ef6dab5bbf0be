// Atomics. Threadgroups run on several threads of the host, so these use the
// host's atomic instructions.
#pragma once

#include "atomic_types.h"
#include "simd.h"

namespace metal {} // namespace metal

// In checked kernels, atomics are not instrumented.
#ifdef MTLSIM_CHECKED
#define MTLSIM_ATOMIC [[gnu::noinline]] inline
#else
#define MTLSIM_ATOMIC METAL_FUNC
#endif

namespace mtlsim {
#ifdef MTLSIM_CHECKED
void atomic_use(const volatile void* address, uint64_t size, bool store);
void fence();
#else
[[gnu::always_inline]] inline void
atomic_use(const volatile void*, uint64_t, bool) {}
[[gnu::always_inline]] inline void fence() {}
#endif
} // namespace mtlsim

namespace metal {

template <class T>
MTLSIM_ATOMIC T
atomic_load_explicit(const volatile atomic<T>* a, memory_order order)
    MTLSIM_RELAXED(order) {
  mtlsim::atomic_use(a, sizeof(T), false);
  T v;
  __atomic_load(const_cast<const T*>(&a->value), &v, __ATOMIC_RELAXED);
  return v;
}
template <class T>
MTLSIM_ATOMIC void atomic_store_explicit(
    volatile atomic<T>* a,
    mtlsim::Identity<T> v,
    memory_order order) MTLSIM_RELAXED(order) {
  mtlsim::atomic_use(a, sizeof(T), true);
  __atomic_store(const_cast<T*>(&a->value), &v, __ATOMIC_RELAXED);
}
template <class T>
MTLSIM_ATOMIC T atomic_exchange_explicit(
    volatile atomic<T>* a,
    mtlsim::Identity<T> v,
    memory_order order) MTLSIM_RELAXED(order) {
  mtlsim::atomic_use(a, sizeof(T), true);
  T old;
  __atomic_exchange(const_cast<T*>(&a->value), &v, &old, __ATOMIC_RELAXED);
  return old;
}
template <class T>
MTLSIM_ATOMIC bool atomic_compare_exchange_weak_explicit(
    volatile atomic<T>* a,
    T* expected,
    mtlsim::Identity<T> v,
    memory_order order,
    memory_order failed) MTLSIM_RELAXED(order) MTLSIM_RELAXED(failed) {
  mtlsim::atomic_use(a, sizeof(T), true);
  return __atomic_compare_exchange(
      const_cast<T*>(&a->value),
      expected,
      &v,
      false,
      __ATOMIC_RELAXED,
      __ATOMIC_RELAXED);
}

} // namespace metal

namespace mtlsim {
template <class T, class F>
MTLSIM_ATOMIC T atomic_update(volatile metal::atomic<T>* a, F next) {
  T old = metal::atomic_load_explicit(a, metal::memory_order_relaxed);
  while (!metal::atomic_compare_exchange_weak_explicit(
      a,
      &old,
      next(old),
      metal::memory_order_relaxed,
      metal::memory_order_relaxed)) {
  }
  return old;
}
} // namespace mtlsim

#define MTLSIM_FETCH(name, expression)                                       \
  template <class T>                                                         \
  MTLSIM_FETCHED_##name MTLSIM_ATOMIC T atomic_fetch_##name##_explicit(      \
      volatile atomic<T>* a, mtlsim::Identity<T> v, memory_order order)      \
      MTLSIM_RELAXED(order) {                                                \
    return mtlsim::atomic_update(a, [=](T old) -> T { return expression; }); \
  }
namespace metal {
MTLSIM_FETCH(add, old + v)
MTLSIM_FETCH(sub, old - v)
MTLSIM_FETCH(and, old& v)
MTLSIM_FETCH(or, old | v)
MTLSIM_FETCH(xor, old ^ v)
MTLSIM_FETCH(min, v < old ? v : old)
MTLSIM_FETCH(max, old < v ? v : old)
METAL_FUNC void atomic_min_explicit(
    volatile atomic_ulong* a,
    ulong v,
    memory_order order) MTLSIM_RELAXED(order) {
  mtlsim::atomic_update(a, [=](ulong old) { return v < old ? v : old; });
}
METAL_FUNC void atomic_max_explicit(
    volatile atomic_ulong* a,
    ulong v,
    memory_order order) MTLSIM_RELAXED(order) {
  mtlsim::atomic_update(a, [=](ulong old) { return old < v ? v : old; });
}

METAL_FUNC void atomic_thread_fence(
    mem_flags,
    memory_order = memory_order_seq_cst,
    thread_scope = thread_scope_device) {
  mtlsim::fence();
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
} // namespace metal
#undef MTLSIM_FETCH
#undef MTLSIM_ATOMIC
