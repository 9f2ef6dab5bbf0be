// 5.2.3.6: do not match
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y, uint2 i [[thread_position_in_grid]], uint3 g [[threadgroup_position_in_grid]]) { y[i.x] = g.x; }
