// 4: needs an address space
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y, const int& n, uint i [[thread_position_in_grid]]) { y[i] = n; }
