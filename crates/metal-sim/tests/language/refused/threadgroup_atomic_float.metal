// 6.15.4: device memory
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  threadgroup atomic<float> t;
  atomic_fetch_add_explicit(&t, 1.0f, memory_order_relaxed);
  y[i] = x[i];
}
