// 4: mismatching address spaces
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  threadgroup float t[4];
  t[0] = 1;
  device float* p = (device float*)t;
  y[i] = p[0];
}
