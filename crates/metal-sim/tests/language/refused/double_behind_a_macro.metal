// 2.1: 'double'
#include <metal_stdlib>
using namespace metal;
#define REAL double
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  REAL v = x[i];
  y[i] = v;
}
