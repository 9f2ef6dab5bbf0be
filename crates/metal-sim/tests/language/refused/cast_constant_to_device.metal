// 4: mismatching address spaces
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], constant float* c [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  device float* p = (device float*)c;
  y[i] = p[0];
}
