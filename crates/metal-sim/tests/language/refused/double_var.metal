// 2.1: 'double'
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) { double d = x[i]; y[i] = float(d * 2); }
