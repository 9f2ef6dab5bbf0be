// 1.5: assembly
#include <metal_stdlib>
using namespace metal;
asm(".globl k");
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}
