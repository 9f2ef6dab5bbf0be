// 4: mismatching address spaces
#include <metal_stdlib>
using namespace metal;
template <typename T> T f(const device T* x) {
  thread T* p = (thread T*)x;
  return p[0];
}
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = f<float>(x);
}
