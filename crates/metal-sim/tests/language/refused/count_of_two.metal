// 5.2.3.6: not valid for attribute
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y, uint2 i [[thread_index_in_simdgroup]]) { y[i.x] = 1; }
