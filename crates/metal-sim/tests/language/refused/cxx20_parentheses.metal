// 1.5: C++17
#include <metal_stdlib>
using namespace metal;
struct P { float a, b; };
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  P p(x[i], 2);
  y[i] = p.a + p.b;
}
