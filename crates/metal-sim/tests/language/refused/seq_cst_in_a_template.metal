// 6.15.1: memory_order_relaxed
#include <metal_stdlib>
using namespace metal;
template <typename T> void bump(device atomic<T>* a) { atomic_fetch_add_explicit(a, T(1), memory_order_seq_cst); }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], device atomic_uint* a [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  bump(a);
  y[i] = x[i];
}
