// 1.5.4: 'thread_local'
#include <metal_stdlib>
using namespace metal;
__thread int n = 0;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = n++;
}
