// 6.15.4.5: this function takes
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], device atomic_bool* a [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(a, true, memory_order_relaxed);
  y[i] = x[i];
}
