// 2.1: _Complex
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  _Complex float v = x[i];
  y[i] = __real__ v;
}
