// 1.5.4: 'thread_local'
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  thread_local int n = 0;
  y[i] = n++;
}
