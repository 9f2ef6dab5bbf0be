#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], device atomic_uint* u [[buffer(2)]], device atomic_float* f [[buffer(3)]],
    device atomic_ulong* l [[buffer(4)]], device atomic_bool* b [[buffer(5)]],
    uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(u, 1u, memory_order_relaxed);
  atomic_fetch_max_explicit(u, 1u, memory_order_relaxed);
  atomic_fetch_add_explicit(f, 1.0f, memory_order_relaxed);
  atomic_max_explicit(l, 2ul, memory_order_relaxed);
  threadgroup atomic_int t;
  atomic_store_explicit(&t, 1, memory_order_relaxed);
  atomic_store_explicit(b, true, memory_order_relaxed);
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
  y[i] = atomic_load_explicit(u, memory_order_relaxed) + atomic_load_explicit(&t, memory_order_relaxed);
}
