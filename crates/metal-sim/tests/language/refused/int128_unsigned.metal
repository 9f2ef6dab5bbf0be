// 2.1: __uint128_t
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  __uint128_t v = i;
  y[i] = float(v);
}
