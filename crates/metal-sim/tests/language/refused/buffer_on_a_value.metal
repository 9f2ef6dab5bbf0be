// 5.2.1: not valid for its attribute
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], int n [[buffer(1)]]) { y[0] = n; }
