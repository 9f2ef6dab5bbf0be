// 1.5: assembly
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float v = x[i];
  asm("" : "+r"(v));
  y[i] = v;
}
