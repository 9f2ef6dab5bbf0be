// 4.4: belongs in a kernel
#include <metal_stdlib>
using namespace metal;
struct S {
  static float f(uint i) {
    threadgroup float t[32];
    t[i & 31] = i;
    return t[i & 31];
  }
};
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = S::f(i);
}
