// 1.5.4: noexcept
#include <metal_stdlib>
using namespace metal;
float f(float v) { return v; }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = noexcept(f(1.0f)) ? 1 : 0;
}
