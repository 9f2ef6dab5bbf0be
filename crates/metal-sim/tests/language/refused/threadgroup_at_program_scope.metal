// 4.4: belongs in a kernel
#include <metal_stdlib>
using namespace metal;
threadgroup float t[32];
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  t[i & 31] = x[i];
  y[i] = t[i & 31];
}
