#include <metal_stdlib>
using namespace metal;
struct B { float v; };
struct D : B { float w; };
template <typename T> struct E : T { float u; };
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  D d;
  d.v = x[i];
  d.w = 1;
  E<B> e;
  e.v = d.v;
  e.u = 2;
  y[i] = d.v + d.w + e.v + e.u;
}
