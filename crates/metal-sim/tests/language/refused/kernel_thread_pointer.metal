// 4: thread memory
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(thread float* y, uint i [[thread_position_in_grid]]) { y[i] = 1; }
