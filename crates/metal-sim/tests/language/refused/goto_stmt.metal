// 1.5.4: 'goto'
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) { int n = 0; again: n++; if (n < 3) goto again; y[i] = n; }
