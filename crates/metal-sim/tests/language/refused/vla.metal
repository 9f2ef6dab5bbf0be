// 1.5: variable length array
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) { int n = int(x[i]) + 1; float a[n]; for (int j = 0; j < n; j++) a[j] = j; y[i] = a[n-1]; }
