// 5.1.4: pointers to functions
#include <metal_stdlib>
using namespace metal;
float apply(float (*f)(float), float v) { return f(v); }
float twice(float v) { return v * 2; }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = apply(twice, x[i]);
}
