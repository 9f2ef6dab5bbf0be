// 5.3: cannot be declared static
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  static constant float c = 2;
  y[i] = x[i] * c;
}
