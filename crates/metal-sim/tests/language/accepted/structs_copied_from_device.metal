#include <metal_stdlib>
using namespace metal;
struct S { float a, b; };
[[kernel]] void k(device S* y [[buffer(0)]], const device S* x [[buffer(1)]], constant S& c [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  S s = x[i];
  S t = c;
  s.a += t.b;
  y[i] = s;
}
