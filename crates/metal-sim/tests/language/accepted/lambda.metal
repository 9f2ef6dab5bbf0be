// Metal 3.2
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  auto twice = [&](auto v) { return v * x[i]; };
  y[i] = twice(2.0f);
}
