// 2.6: an atomic is one of
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], device atomic<short>* a [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  atomic_store_explicit(a, short(1), memory_order_relaxed);
  y[i] = x[i];
}
