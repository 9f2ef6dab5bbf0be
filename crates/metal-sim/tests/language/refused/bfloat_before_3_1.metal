// 2.1: 'bfloat' needs Metal 3.1
// Metal 3.0
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  bfloat v = bfloat(x[i]);
  y[i] = float(v);
}
