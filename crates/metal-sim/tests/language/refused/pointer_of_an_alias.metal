// 4: explicit address space
#include <metal_stdlib>
using namespace metal;
using P = float*;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float q = x[i];
  P p = &q;
  y[i] = *p;
}
