// 4: needs an address space
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) { y[i] = 1; }
