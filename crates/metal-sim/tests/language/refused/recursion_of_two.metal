// 1.5.4: recursive call
#include <metal_stdlib>
using namespace metal;
float g(float v);
float f(float v) { return v < 1 ? v : g(v - 1); }
float g(float v) { return v < 1 ? v : f(v - 1); }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = f(x[i]);
}
