// 1.5.4: recursive call
#include <metal_stdlib>
using namespace metal;
void f(thread float& v, int n) {
  for (int j = 0; j < n; j++) {
    f(v, j);
  }
}
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float v = x[i];
  f(v, 3);
  y[i] = v;
}
