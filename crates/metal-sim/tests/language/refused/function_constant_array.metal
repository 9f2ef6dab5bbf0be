// 5.8.1: not an array
#include <metal_stdlib>
using namespace metal;
constant int n[2] [[function_constant(0)]];
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = n[0];
}
