// 4.4: initial value
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  threadgroup int a, b = {5};
  a = 1;
  y[i] = a + b;
}
