// 5.2.3.6: not valid for attribute
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], float i [[thread_position_in_grid]]) { y[int(i)] = 1; }
