// 5.2.1: resource location at index 2
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* a [[buffer(2)]], device float* b [[buffer(2)]], constant int& n [[buffer(2)]]) { a[n] = b[n]; }
