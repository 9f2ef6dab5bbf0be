// 6.9.3: quad take
#include <metal_stdlib>
using namespace metal;
struct S { float a; };
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  S s{x[i]};
  y[i] = quad_shuffle(s, 1).a;
}
