// 1.5.4: virtual base
#include <metal_stdlib>
using namespace metal;
struct B { int v; };
struct D : virtual B {};
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}
