// 6.15.4: device memory
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  threadgroup atomic_float t[2];
  y[i] = atomic_load_explicit(&t[0], memory_order_relaxed);
}
