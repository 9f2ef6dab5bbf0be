#include <metal_stdlib>
using namespace metal;
struct B { int n; };
struct D : B { int m; };
[[kernel]] void k(device float* y, constant B& b, uint i [[thread_position_in_grid]]) {
  D d;
  d.n = b.n;
  d.m = 1;
  y[i] = d.n + d.m;
}
