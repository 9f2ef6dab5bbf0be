// 2.1: _BitInt
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  _BitInt(24) v = int(x[i]);
  y[i] = int(v);
}
