// 5.2.3.6: do not match
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y, uint i [[thread_position_in_grid]], ushort n [[threads_per_grid]]) { y[i] = n; }
