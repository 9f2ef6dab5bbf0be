// : not assignable
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], constant float* c [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  c[0] = 1;
  y[i] = c[0];
}
