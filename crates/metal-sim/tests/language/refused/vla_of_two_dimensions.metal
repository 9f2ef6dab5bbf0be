// 1.5: variable length array
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  int n = int(x[i]) + 1;
  float a[n][2];
  a[0][0] = n;
  y[i] = a[0][0];
}
