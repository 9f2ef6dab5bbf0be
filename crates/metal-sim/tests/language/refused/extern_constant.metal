// 4: not defined
#include <metal_stdlib>
using namespace metal;
extern constant int optind;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = optind;
}
