// 2.1: __int128
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) { __int128 d = (__int128)x[i]; y[i] = float(d * 2); }
