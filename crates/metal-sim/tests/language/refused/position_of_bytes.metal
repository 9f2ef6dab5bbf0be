// 5.2.3.6: not valid for attribute
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y, uchar i [[thread_position_in_threadgroup]]) { y[i] = 1; }
