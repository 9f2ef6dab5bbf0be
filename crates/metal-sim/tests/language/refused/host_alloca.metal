// 1.5.4: __builtin_alloca
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  thread float* p = (thread float*)__builtin_alloca(16);
  y[i] = p[0];
}
