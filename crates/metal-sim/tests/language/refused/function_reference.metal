// 5.1.4: pointers to functions
#include <metal_stdlib>
using namespace metal;
float a(float v) { return v; }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float (&f)(float) = a;
  y[i] = f(x[i]);
}
