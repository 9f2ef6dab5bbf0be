#include <metal_stdlib>
using namespace metal;
struct S {
  float v;
  S() = default;
  S(float a) : v(a) {}
  S(int) = delete;
};
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  S s(x[i]);
  S t = s;
  y[i] = t.v;
}
