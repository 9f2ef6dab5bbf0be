#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  threadgroup float t[32] = {0};
  threadgroup int a, b;
  threadgroup float* p = t + (i & 15);
  if (i == 0) { a = 1; b = 2; }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  p[0] = x[i];
  y[i] = t[i & 31] + a + b;
}
