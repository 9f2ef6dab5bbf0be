// 1.5.4: throw
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  if (x[i] < 0) throw 1;
  y[i] = x[i];
}
