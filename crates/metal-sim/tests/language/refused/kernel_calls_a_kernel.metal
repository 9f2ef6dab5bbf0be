// 5.1: cannot be called
#include <metal_stdlib>
using namespace metal;
[[kernel]] void other(device float* y [[buffer(0)]]) { y[0] = 1; }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  other(y);
}
