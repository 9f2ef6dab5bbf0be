// 6.15.1: memory_order_relaxed
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], device atomic_uint* a [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  uint old = 0;
  y[i] = atomic_compare_exchange_weak_explicit(a, &old, 1u, memory_order_relaxed, memory_order_seq_cst);
}
