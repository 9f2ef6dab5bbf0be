// 1.5.4: 'goto'
#include <metal_stdlib>
using namespace metal;
float f(float v) {
  if (v > 0) goto out;
  v = -v;
out:
  return v;
}
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = f(x[i]);
}
