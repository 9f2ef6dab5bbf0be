// 1.5.4: lambda expressions are not supported before Metal 3.2
// Metal 3.1
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  auto twice = [](float v) { return v * 2; };
  y[i] = twice(x[i]);
}
