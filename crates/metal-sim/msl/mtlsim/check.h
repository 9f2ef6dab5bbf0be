// The shim for checking address spaces: types and declarations only, and
// nothing of it is run. `thread` is the default space, as in Metal, so that a
// qualifier that was left out is a wrong one.
#pragma once

#define mtlsim_space_device __attribute__((address_space(1)))
#define mtlsim_space_constant __attribute__((address_space(2)))
#define mtlsim_space_threadgroup __attribute__((address_space(3)))

#include "matrix.h"

namespace mtlsim {
template <class T, int Declaration>
mtlsim_space_threadgroup T& local();
} // namespace mtlsim

namespace metal {

enum memory_order {
  memory_order_relaxed,
  memory_order_acquire,
  memory_order_release,
  memory_order_acq_rel,
  memory_order_seq_cst
};
enum thread_scope {
  thread_scope_thread,
  thread_scope_simdgroup,
  thread_scope_threadgroup,
  thread_scope_device
};

template <class T>
struct atomic {
  T value;
};
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_bool = atomic<bool>;
using atomic_ulong = atomic<ulong>;
using atomic_float = atomic<float>;

#define MTLSIM_ATOMICS(space)                                            \
  template <class T>                                                     \
  T atomic_load_explicit(const volatile space atomic<T>*, memory_order); \
  template <class T>                                                     \
  void atomic_store_explicit(                                            \
      volatile space atomic<T>*, std::type_identity_t<T>, memory_order); \
  template <class T>                                                     \
  T atomic_exchange_explicit(                                            \
      volatile space atomic<T>*, std::type_identity_t<T>, memory_order); \
  template <class T>                                                     \
  bool atomic_compare_exchange_weak_explicit(                            \
      volatile space atomic<T>*,                                         \
      T*,                                                                \
      std::type_identity_t<T>,                                           \
      memory_order,                                                      \
      memory_order);                                                     \
  template <class T>                                                     \
  T atomic_fetch_add_explicit(                                           \
      volatile space atomic<T>*, std::type_identity_t<T>, memory_order); \
  template <class T>                                                     \
  T atomic_fetch_sub_explicit(                                           \
      volatile space atomic<T>*, std::type_identity_t<T>, memory_order); \
  template <class T>                                                     \
  T atomic_fetch_and_explicit(                                           \
      volatile space atomic<T>*, std::type_identity_t<T>, memory_order); \
  template <class T>                                                     \
  T atomic_fetch_or_explicit(                                            \
      volatile space atomic<T>*, std::type_identity_t<T>, memory_order); \
  template <class T>                                                     \
  T atomic_fetch_xor_explicit(                                           \
      volatile space atomic<T>*, std::type_identity_t<T>, memory_order); \
  template <class T>                                                     \
  T atomic_fetch_min_explicit(                                           \
      volatile space atomic<T>*, std::type_identity_t<T>, memory_order); \
  template <class T>                                                     \
  T atomic_fetch_max_explicit(                                           \
      volatile space atomic<T>*, std::type_identity_t<T>, memory_order);
MTLSIM_ATOMICS(mtlsim_space_device)
MTLSIM_ATOMICS(mtlsim_space_threadgroup)
#undef MTLSIM_ATOMICS

void atomic_thread_fence(
    mem_flags,
    memory_order = memory_order_seq_cst,
    thread_scope = thread_scope_device);

} // namespace metal

#define is_function_constant_defined(name) (mtlsim_defined_##name)
