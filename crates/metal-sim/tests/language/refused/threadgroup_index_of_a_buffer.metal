// 5.2.1: not valid for attribute 'threadgroup'
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[threadgroup(0)]]) { y[0] = 1; }
