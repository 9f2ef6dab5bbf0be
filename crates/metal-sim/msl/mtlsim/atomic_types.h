// The types of atomics, for kernels that run and for checks.
#pragma once

#include "types.h"

namespace metal {

// Metal 4 has only these two of C++'s memory orders.
enum memory_order {
  memory_order_relaxed = __ATOMIC_RELAXED,
  memory_order_seq_cst = __ATOMIC_SEQ_CST
};
enum thread_scope {
  thread_scope_thread,
  thread_scope_simdgroup,
  thread_scope_threadgroup,
  thread_scope_device
};

template <class T>
struct atomic {
  static_assert(
      std::is_same_v<T, int> || std::is_same_v<T, uint> ||
          std::is_same_v<T, bool> || std::is_same_v<T, ulong> ||
          std::is_same_v<T, float>,
      "[MSL 2.6] an atomic is one of int, uint, bool, ulong or float");
  T value;
};
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_bool = atomic<bool>;
using atomic_ulong = atomic<ulong>;
using atomic_float = atomic<float>;

} // namespace metal

#define MTLSIM_RELAXED(order)                                                 \
  MTLSIM_REFUSE(                                                              \
      order != metal::memory_order_relaxed,                                   \
      "6.15.1",                                                               \
      "atomic functions take memory_order_relaxed; only atomic_thread_fence " \
      "takes memory_order_seq_cst")

// The types of atomic_fetch_<key>_explicit.
#define MTLSIM_FETCHED(also, types)                                     \
  MTLSIM_REFUSE(                                                        \
      (!std::is_same_v<T, int> && !std::is_same_v<T, uint> && !(also)), \
      "6.15.4.5",                                                       \
      "this function takes " types)
#define MTLSIM_FETCHED_add \
  MTLSIM_FETCHED(          \
      (std::is_same_v<T, float>), "atomic_int, atomic_uint and atomic_float")
#define MTLSIM_FETCHED_sub MTLSIM_FETCHED_add
#define MTLSIM_FETCHED_and MTLSIM_FETCHED(false, "atomic_int and atomic_uint")
#define MTLSIM_FETCHED_or MTLSIM_FETCHED_and
#define MTLSIM_FETCHED_xor MTLSIM_FETCHED_and
#define MTLSIM_FETCHED_min MTLSIM_FETCHED_and
#define MTLSIM_FETCHED_max MTLSIM_FETCHED_and
