// 1.5.4: 'getpid' is declared but not defined
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  int getpid();
  y[i] = getpid();
}
