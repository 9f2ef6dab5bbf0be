// 4: address space
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float v = 1;
  thread float* p = &v;
  p = y;
  y[i] = *p;
}
