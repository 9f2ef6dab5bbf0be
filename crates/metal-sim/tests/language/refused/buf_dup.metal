// 5.2.1: resource location at index 0
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { y[i] = x[i]; }
