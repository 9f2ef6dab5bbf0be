#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float4 v = simd_sum(float4(x[i]));
  half h = simd_shuffle_down(half(x[i]), 1);
  bfloat b = simd_broadcast(bfloat(x[i]), 3);
  ushort s = simd_min(ushort(i));
  char c = simd_max(char(i));
  uint2 u = simd_shuffle(uint2(i, 1), 0);
  bool any = simd_any(x[i] > 0);
  y[i] = v.x + h + float(b) + s + c + u.x + any + quad_sum(x[i]) + simd_prefix_inclusive_sum(i);
}
