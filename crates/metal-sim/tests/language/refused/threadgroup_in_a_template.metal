// 4.4: belongs in a kernel
#include <metal_stdlib>
using namespace metal;
template <typename T> T f(T v, uint i) {
  threadgroup T t[32];
  t[i & 31] = v;
  return t[i & 31];
}
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = f(x[i], i);
}
