// 4.2: function scope
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  constant float c[2] = {1, 2};
  y[i] = c[i & 1];
}
