// 5.2.1: resource location at index 1
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y, threadgroup float* a [[threadgroup(1)]], threadgroup float* b [[threadgroup(1)]]) { y[0] = a[0] + b[0]; }
