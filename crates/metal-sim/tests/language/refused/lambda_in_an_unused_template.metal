// 1.5.4: lambda expressions
// Metal 3.0
#include <metal_stdlib>
using namespace metal;
template <typename T> T f(T v) {
  return [&] { return v; }();
}
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}
