// 5.3: cannot be declared static
#include <metal_stdlib>
using namespace metal;
template <typename T> T f(T v) {
  static const T c = 2;
  return v * c;
}
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = f(x[i]);
}
