// 4.4: belongs in a kernel
#include <metal_stdlib>
using namespace metal;
float f(float v, uint l) { threadgroup float t[32]; t[l] = v; return t[l]; }
[[kernel]] void k(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]], uint l [[thread_position_in_threadgroup]]) { y[i] = f(1, l & 31); }
