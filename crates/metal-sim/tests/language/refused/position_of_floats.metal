// 5.2.3.6: not valid for attribute
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y, float2 i [[threads_per_grid]]) { y[0] = i.x; }
