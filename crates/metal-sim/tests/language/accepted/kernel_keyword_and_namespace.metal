#include <metal_stdlib>
using namespace metal;
namespace a {
kernel void other(device float* y, uint i [[thread_position_in_grid]]) { y[i] = 1; }
}
kernel void k(device float* y, uint2 i [[thread_position_in_grid]], uint2 n [[threads_per_grid]],
    ushort lane [[thread_index_in_simdgroup]], uint l [[thread_position_in_threadgroup]]) { y[i.x + n.x] = lane + l; }
