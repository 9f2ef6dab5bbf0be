// 5.2.1: not valid for attribute 'buffer'
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y, threadgroup float* t [[buffer(1)]]) { y[0] = t[0]; }
