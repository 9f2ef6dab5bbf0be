// 4: explicit address space
#include <metal_stdlib>
using namespace metal;
float f(float* p) { return *p; }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float v = x[i];
  y[i] = f(&v);
}
