// 4.2: default initialization
#include <metal_stdlib>
using namespace metal;
constant int a = 1, b;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = a + b;
}
