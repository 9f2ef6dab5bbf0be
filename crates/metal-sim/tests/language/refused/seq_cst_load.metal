// 6.15.1: memory_order_relaxed
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], device atomic_uint* a [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = atomic_load_explicit(a, memory_order_seq_cst);
}
