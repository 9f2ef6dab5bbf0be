// 5.2.3.6: may not be in device memory
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y, device uint* i [[thread_position_in_grid]]) { y[*i] = 1; }
