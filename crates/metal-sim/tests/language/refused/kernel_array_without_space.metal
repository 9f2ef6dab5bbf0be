// 4: needs an address space
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y, const float x[4], uint i [[thread_position_in_grid]]) { y[i] = x[i]; }
