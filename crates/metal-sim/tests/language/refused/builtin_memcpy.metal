// 1.5.4: __builtin_memcpy
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float v;
  __builtin_memcpy(&v, &i, 4);
  y[i] = v;
}
