// 1.5: variable length array
#include <metal_stdlib>
using namespace metal;
float f(int n) {
  float a[n];
  a[0] = n;
  return a[0];
}
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = f(int(x[i]));
}
