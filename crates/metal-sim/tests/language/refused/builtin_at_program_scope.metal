// 4: pass the value as a parameter
#include <metal_stdlib>
using namespace metal;
uint lane [[thread_index_in_simdgroup]];
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = lane;
}
